"""The part of Go's template language that `args` and `env` of a runtime may use.

Lives here: text to tokens (`lexer`), to jinja2 (`translator`), to the result (`template`).
May not be here: what a template is about; jinja2 anywhere but in template.py.
Read first: template.py.
"""
