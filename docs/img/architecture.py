"""Makes architecture.svg, the picture in docs/architecture.md: python3 docs/img/architecture.py > docs/img/architecture.svg

Processes, packages, and the way of a sample. A thick blue line carries the bytes of samples. A thin line is a question or an order. The numbers
are explained in LEGEND.
"""

WIDTH, HEIGHT = 980, 768

LEGEND = [
    "1  the blocks of a segment are read into a slot (logfile, blockio)",
    "2  each sample is verified there and published (reorder)",
    "3  its bytes are appended to the Logfile of the next epoch: the one copy (reorder, logfile)",
    "4  samples that the scan does not load come from random reads, or from the source (prefetch, fetch)",
    "5  the client gets offsets through the socket, and reads the bytes in the mapped memory (deliver, server)",
]

STYLE = """
  svg { color-scheme: light dark; font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  text { fill: #1f2328; }
  .head { font-weight: 600; font-size: 15px; }
  .name { font-weight: 600; }
  .note { fill: #59636e; font-size: 12px; }
  .process { fill: #f6f8fa; stroke: #59636e; }
  .box { fill: #ffffff; stroke: #8c959f; }
  .memory { fill: #ddf4ff; stroke: #0969da; }
  .disk { fill: #fff8c5; stroke: #9a6700; }
  .way { fill: none; stroke: #0969da; stroke-width: 4; }
  .waytip { fill: #0969da; }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.4; }
  .tip { fill: #59636e; }
  .number { fill: #0969da; }
  .digit { fill: #ffffff; font-size: 12px; font-weight: 600; text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .note { fill: #b1bac4; }
    .process { fill: #151b23; stroke: #848d97; }
    .box { fill: #0d1117; stroke: #848d97; }
    .memory { fill: #0c2d4d; stroke: #4493f8; }
    .disk { fill: #3a2d05; stroke: #d29922; }
    .way { stroke: #4493f8; }
    .waytip, .number { fill: #4493f8; }
    .arrow { stroke: #b1bac4; }
    .tip { fill: #b1bac4; }
    .digit { fill: #0d1117; }
  }
"""


def text(x, y, words, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def box(x, y, width, height, name, notes=(), kind="box"):
    """A package, or another thing that has a name."""
    lines = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>', text(x + 10, y + 20, name, "name")]
    return lines + [text(x + 10, y + 37 + 15 * i, note, "note") for i, note in enumerate(notes)]


def process(x, y, width, height, name):
    return [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" class="process"/>', text(x + 12, y + 24, name, "head")]


def way(path):
    """Bytes of samples go along it."""
    return f'<path d="{path}" class="way" marker-end="url(#waytip)"/>'


def arrow(path):
    return f'<path d="{path}" class="arrow" marker-end="url(#tip)"/>'


def number(x, y, n):
    return [f'<circle cx="{x}" cy="{y}" r="9" class="number"/>', text(x, y + 4, n, "digit")]


def client():
    lines = process(16, 16, 192, 520, "training process")
    lines += box(30, 56, 164, 58, "lcache.torch", ["DataLoader, …"])
    lines += box(30, 136, 164, 58, "lcache", ["Job, Link, Session"])
    lines += box(30, 268, 164, 74, "mapped memory", ["read-only; batches are", "memoryviews into it"], "memory")
    lines += [arrow("M112 114 V134"), text(30, 222, "a forked worker has a", "note"), text(30, 237, "session of its own", "note")]
    return lines


def server():
    lines = process(232, 16, 532, 520, "server process: lcache serve, lcache run")
    lines += box(286, 56, 132, 58, "server", ["socket, frames"])
    lines += box(438, 56, 132, 58, "deliver", ["batches, leases"])
    lines += box(584, 56, 162, 104, "engine", ["mover: look, decide,", "apply; window: samples", "in flight; counts.", "Serves out of a Mover"])
    lines += box(438, 146, 132, 58, "schedule", ["order of an epoch"])
    lines += box(250, 232, 496, 76, "staging", [], "memory")
    lines += box(262, 262, 132, 36, "slots") + box(406, 262, 92, 36, "miss ring") + box(510, 262, 118, 36, "side memory") + box(640, 262, 94, 36, "spare part")
    lines += box(286, 352, 138, 58, "reorder", ["scan: verify, route"])
    lines += box(438, 352, 180, 58, "prefetch, fetch", ["random reads, the source"])
    lines += box(634, 352, 112, 58, "cache", ["places, sizes"])
    lines += box(286, 440, 212, 40, "logfile") + [text(358, 460, "Logfiles, journals", "note")]
    lines += box(286, 490, 212, 34, "blockio") + [text(358, 510, "io_uring or pread", "note")]
    lines += box(538, 440, 80, 40, "source")
    return lines


def offline():
    lines = process(788, 16, 176, 520, "lcache ingest")
    lines += [text(800, 58, "and lcache run before it", "note"), text(800, 73, "serves: alone, by LOCK", "note")]
    lines += box(802, 92, 148, 58, "ingest", ["decides, fills"])
    lines += box(802, 172, 148, 58, "resort", ["a scan without clients"])
    lines += box(802, 252, 148, 58, "cache", ["the existing cache"])
    lines += box(802, 332, 148, 74, "logfile, source", ["and the layers below"])
    lines += [arrow("M876 150 V170"), arrow("M876 230 V250"), arrow("M876 310 V330")]
    return lines


def outside():
    lines = box(250, 572, 248, 58, "SSD: directories of the cache", ["arena, journals, manifest, sums"], "disk")
    return lines + box(538, 572, 208, 58, "source", ["files, never changed"], "disk")


def lines_between():
    lines = [arrow("M194 160 H240 V85 H284"), text(244, 78, "frames", "note")]
    lines += [arrow("M418 85 H436"), arrow("M570 85 H582"), arrow("M584 140 H504 V144")]
    lines += [arrow("M504 114 V128 H428 V230"), text(346, 200, "Take, wait", "note")]
    lines += [arrow("M746 120 H756 V330 H352 V350"), text(640, 325, "Load(segment)", "note")]
    # 1: the disk fills the slot
    lines += [way("M268 572 V304"), *number(268, 430, 1)]
    # 2 and 3: verified in place, and appended
    lines += [way("M320 300 V350"), *number(320, 322, 2)]
    lines += [way("M352 410 V438"), *number(376, 424, 3), way("M352 524 V570")]
    # 4: samples that the scan does not load
    lines += [way("M478 440 V412"), way("M578 440 V412"), way("M578 572 V482"), way("M528 352 V304"), *number(528, 330, 4)]
    # 5: delivered by reference
    lines += [way("M250 290 H200"), *number(226, 290, 5)]
    # offline
    lines += [way("M746 600 H910 V410"), way("M850 406 V652 H374 V634")]
    return lines


def picture():
    lines = client() + server() + offline() + outside() + lines_between()
    return lines + [text(24, 676 + 18 * i, words, "note") for i, words in enumerate(LEGEND)]


def main():
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title">')
    print('<title id="title">The training process sends requests over a socket and reads samples in shared memory. In the server a scan loads segments'
          " from the SSD into the shared memory, verifies each sample, and appends it to the log of the next epoch.</title>")
    print(f"<style>{STYLE}</style>")
    for name, kind in (("tip", "tip"), ("waytip", "waytip")):
        size = 7 if name == "tip" else 4
        print(f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{size}" markerHeight="{size}" orient="auto">'
              f'<path d="M0 0 L8 4 L0 8 z" class="{kind}"/></marker></defs>')
    print(f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" class="page"/>')
    print("\n".join(picture()))
    print("</svg>")


if __name__ == "__main__":
    main()
