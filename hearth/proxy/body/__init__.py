"""Request bodies: their fields, their codings, and the memory that they may take.

Everything here computes and knows no connection.  Read `body_fields` first.
"""
