"""KEDA's contract: externalscaler.proto, and what is generated from it.

Lives here: what `scripts/generate` writes, for the server (`keda`) and for the stand-in
(`cluster.local.keda`).
May not be here: a line written by hand.
Read first: externalscaler.proto.
"""
