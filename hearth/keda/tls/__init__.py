"""TLS for the scaler's port: who may speak for which service.

Lives here: certificates from Secrets, kept in step with them, and the port that picks one by server
name.
May not be here: what is answered once a caller is let in.
Read first: sni_port.py, then certificate_store.py.
"""
