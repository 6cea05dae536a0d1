"""Request bodies: their fields, their codings, and the memory that they may take.

Lives here: what is read from a body, and the budget of all that are buffered.
May not be here: connections and I/O; everything here computes.
Read first: body_fields.py.
"""
