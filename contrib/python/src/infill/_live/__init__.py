"""Rescales without a restart: processes stay alive while others join and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .elastic import Elastic as live
else:

    def live(*arguments: Any, **options: Any):
        """The older name of `infill.torch.Elastic`."""
        from .elastic import Elastic

        return Elastic(*arguments, **options)


__all__ = ["live"]
