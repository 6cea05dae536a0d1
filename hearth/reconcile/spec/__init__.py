"""What an LLMService and its InferenceRuntime say, and whether it can be served.

Lives here: parsing what the cluster holds, the choice of a runtime, errors and warnings of a spec.
May not be here: I/O; objects that are written; what pods do.
Read first: parse.py.
"""
