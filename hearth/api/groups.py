"""The two API groups that Hearth serves with one reconciler."""

HEARTH = "serving.hearth.dev"
NOCTAYA = "serving.noctaya.io"
VERSION = "v1alpha1"
GROUPS = (HEARTH, NOCTAYA)
