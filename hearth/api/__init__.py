"""What people write: LLMService and InferenceRuntime, their rules, and their CRDs.

Lives here: models, defaults, schemas, the meaning of Kubernetes' times, amounts and addresses.
May not be here: I/O, and what is made of a spec; nothing of Hearth but `api` is imported.
Read first: llmservice.py and runtime.py, then rules.py; meta.py has what all objects share.
"""
