"""All planted faults, one per rule of the audit.

A plant is given a fresh scratch campaign of which nothing is admitted yet; what it needs of an ordinary campaign around its fault it fills
by :meth:`~marathond.service.doctor.scratch.Scratch.clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from marathond.service.doctor import plants_arms, plants_bias, plants_house, plants_results
from marathond.service.doctor.scratch import Scratch

PLANTS: Mapping[str, Callable[[Scratch], None]] = {
    **plants_bias.PLANTS,
    **plants_arms.PLANTS,
    **plants_results.PLANTS,
    **plants_house.PLANTS,
}
