"""How a cluster is reached: one interface, and what reads and writes through it.

Lives here: informers, work queue, controllers, leader election; `kube` and `local` are the
adapters.
May not be here: LLMService and InferenceRuntime; everything here works for any kind.
Read first: interface.py, then informer.py, workqueue.py and controller.py.
"""
