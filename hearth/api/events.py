"""Kubernetes' Event: one thing that happened to one object."""

import datetime
from typing import Literal

from hearth.api.meta import Manifest, rfc3339

_LONGEST = 1024
"""What Kubernetes takes as an Event's message."""


def render(
    about: Manifest,
    *,
    type: Literal["Normal", "Warning"],
    reason: str,
    message: str,
    component: str,
    unique: str,
    wall: datetime.datetime,
) -> Manifest:
    """A manifest to create, beside the object that it is `about`.

    `about`: apiVersion, kind, and of the metadata name, namespace and uid.  `unique`: ends the
    Event's name, so that no two of an object are the same.  A message that is too long is cut.
    """
    metadata, stamp = about["metadata"], rfc3339(wall)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{unique}",
            "namespace": metadata.get("namespace", ""),
        },
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
        },
        "type": type,
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
