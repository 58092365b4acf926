"""Global scheduling by an index: whenever a track is free, the ready job with the largest index takes it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.scheduling.jobs import Decision, ReadyJob, Situation, Start


class IndexPolicy(ABC):
    """A local order. Subclasses say how a job ranks (a + b * now) and why, nothing else."""

    @abstractmethod
    def index(self, job: ReadyJob) -> tuple[float, float]: ...

    @abstractmethod
    def why(self, job: ReadyJob, value: float) -> str: ...

    def decide(self, situation: Situation) -> Decision:
        if not situation.free or not situation.ready:
            return Decision()
        free = list(situation.free)
        starts: list[Start] = []
        spare: ReadyJob | None = None
        for value, job in situation.ready.ranked(situation.now_us):
            if job.upkeep:  # and so are all that follow
                spare = job
                break
            starts.append(Start(job.table, free.pop(0), self.why(job, value)))
            if not free:
                break
        # Upkeep leaves a track free for what may come, unless there is only one.
        if spare and not starts and len(free) > min(1, situation.tracks - 1):
            starts.append(Start(spare.table, free[0], "nothing else to do: small files are merged"))
        return Decision(tuple(starts))
