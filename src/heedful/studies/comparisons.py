"""What a study compares, seed by seed: arms, pools of arms, and differences of differences."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.studies.jobs import refuse_name


@dataclass(frozen=True, slots=True)
class Pool:
    """Several arms as one: of each measure the mean over the arms, seed by seed. Pairs name it like an arm."""

    name: str
    arms: tuple[str, ...]

    def __post_init__(self) -> None:
        refuse_name("a pool", self.name)
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise ValueError(f"pool {self.name}: expected distinct arms, found {', '.join(self.arms) or 'none'}")


@dataclass(frozen=True, slots=True)
class Pair:
    """A comparison, seed by seed: an arm, or a pool of arms, against its control."""

    arm: str
    control: str

    def __post_init__(self) -> None:
        if self.arm == self.control:
            raise ValueError(f"expected pairs of two arms, found {self.arm} as its own control")

    def __str__(self) -> str:
        return f"{self.arm} − {self.control}"

    @property
    def names(self) -> str:
        return f"{self.arm} against {self.control}"


@dataclass(frozen=True, slots=True)
class Interaction:
    """Whether a comparison comes out otherwise in another setting: a pair's difference minus that of a base pair."""

    pair: Pair
    base: Pair

    def __post_init__(self) -> None:
        if self.pair == self.base:
            raise ValueError(f"expected interactions of two pairs, found {self.pair.names} as its own base")

    def __str__(self) -> str:
        return f"({self.pair}) − ({self.base})"

    @property
    def names(self) -> str:
        return f"({self.pair.names}) less ({self.base.names})"
