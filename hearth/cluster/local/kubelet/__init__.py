"""The kubelet of one machine: a Pod becomes processes, and their state becomes its status.

Lives here: pods, containers, programs, probes, volumes, devices, addresses and logs.
May not be here: which pods there should be (that is controllers/'s).
Read first: kubelet.py, then pod.py and container.py.
"""
