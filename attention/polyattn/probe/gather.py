"""Look as deep as asked: each level starts from the facts of the one before."""

from __future__ import annotations

from polyattn.facts import PlatformFacts
from polyattn.probe.host import Host
from polyattn.probe.static import static_facts
from polyattn.vocabulary import ProbeLevel


def gather(level: ProbeLevel = ProbeLevel.STATIC, host: Host | None = None) -> PlatformFacts:
    """The facts of this machine at a level of probing."""
    host = host or Host()
    facts = static_facts(host=host)
    if level is ProbeLevel.STATIC:
        return facts
    # Imported here: the deeper levels bring subprocess pools and the like, which a start does
    # not need.
    from polyattn.probe.imports import with_imports
    from polyattn.probe.live import with_live_results

    facts = with_imports(facts, host)
    return facts if level is ProbeLevel.IMPORT else with_live_results(facts, host)
