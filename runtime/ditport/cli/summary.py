"""A result in words."""

from __future__ import annotations

from ditport.generation.result import OutputFile, Result


def summary(result: Result) -> str:
    """Files, seeds, seconds per stage, and what attention ran."""
    lines = [_file(file) for file in result.files]
    spent = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
    name = result.model.get("name", "")
    revision = str(result.model.get("revision", ""))[:12]
    lines.append(
        f"model {name}{f' at {revision}' if revision else ''} on {result.device} in {result.dtype}"
    )
    lines.append(f"seconds: {spent}")
    if result.attention is not None:
        lines += ["", "attention that ran:", result.attention.table()]
    return "\n".join(lines)


def _file(file: OutputFile) -> str:
    size = f"{file.width}x{file.height}"
    if file.frames > 1 and file.fps:
        size += f", {file.frames} frames, {file.fps} fps"
    where = file.path or "not saved"
    return f"{where}  ({size}, seed {file.seed}, {file.size_bytes / 1024:.0f} kB)"
