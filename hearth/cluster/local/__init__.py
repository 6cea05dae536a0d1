"""The adapter for one machine: a whole cluster in memory, whose pods are processes.

Lives here: an API server, the controllers of workloads, a kubelet, a stand-in for KEDA and the HPA,
and files as the source of manifests; each in a folder that imports none of the others, only
`cluster` does.
May not be here: what `hearth run` needs.
Read first: cluster.py, then apiserver/store.py and kubelet/kubelet.py.
"""
