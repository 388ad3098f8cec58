"""What this machine is and has: three levels of looking, none of which imports torch here.

`static_facts()` reads files and metadata. `gather(level)` goes as deep as asked: imports and live
kernels run in subprocesses, so that whatever they do is a result and not our end.
"""

from __future__ import annotations

from polyattn.probe.gather import gather
from polyattn.probe.host import Host
from polyattn.probe.static import static_facts

__all__ = ["Host", "gather", "static_facts"]
