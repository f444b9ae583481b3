"""Makes reorder.svg, the picture in README.md: python3 docs/img/reorder.py > docs/img/reorder.svg

Twelve samples, A to L, are read in a shuffled order. ORDER is that of the epoch being read, NEXT that of the epoch after it. Above: plain
files, one read for each sample. Below: the log of each epoch has the samples in the order of its reads.
"""

FILES = "ABCDEFGHIJKL"
ORDER = "GCKAIFLBEJDH"
NEXT = "DKHBAJGLCFIE"
MOVED = ORDER[:8]  # samples that were read already: they stand in the next log, and the rest is still to come

BOX, GAP, LEFT, WIDTH, HEIGHT = 30, 4, 212, 888, 462
HUES = {name: 360 * i // len(FILES) for i, name in enumerate(FILES)}

STYLE = """
  svg { color-scheme: light dark; font: 15px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  text { fill: #1f2328; }
  .head { font-weight: 600; font-size: 16px; }
  .note { fill: #59636e; font-size: 14px; }
  .name { fill: #1f2328; font-size: 14px; text-anchor: middle; }
  .empty { fill: none; stroke: #8c959f; stroke-dasharray: 3 3; }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.4; }
  .tip { fill: #59636e; }
  .frame { fill: none; stroke: #59636e; }
  .rule { stroke: #d0d7de; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .note { fill: #b1bac4; }
    .name { fill: #1f2328; }
    .empty { stroke: #848d97; }
    .arrow, .frame { stroke: #b1bac4; }
    .tip { fill: #b1bac4; }
    .rule { stroke: #3d444d; }
  }
"""


def at(place):
    """The left edge of a place in a row of boxes."""
    return LEFT + place * (BOX + GAP)


def text(x, y, words, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def box(x, y, name):
    return f'<rect x="{x}" y="{y}" width="{BOX}" height="{BOX}" rx="4" fill="hsl({HUES[name]} 65% 78%)"/>' + text(x + BOX // 2, y + 20, name, "name")


def row(y, names, filled=FILES):
    empty = '<rect x="{}" y="{}" width="{}" height="{}" rx="4" class="empty"/>'
    return [box(at(i), y, name) if name in filled else empty.format(at(i), y, BOX, BOX) for i, name in enumerate(names)]


def arrow(path):
    return f'<path d="{path}" class="arrow" marker-end="url(#tip)"/>'


def framed(y, words):
    """The frame around a row, with what reads or writes the row at once."""
    width = len(FILES) * (BOX + GAP) + 8
    return [f'<rect x="{LEFT - 6}" y="{y - 6}" width="{width}" height="{BOX + 12}" rx="8" class="frame"/>', text(LEFT + width + 8, y + 20, words, "note")]


def picture():
    lines = [text(24, 38, "Plain files", "head")]
    lines += [text(24, 78, "files on the disk"), *row(58, FILES)]
    lines += [text(24, 158, "order of the training"), *row(138, ORDER)]
    for i, name in enumerate(ORDER):
        lines.append(arrow(f"M{at(FILES.index(name)) + BOX // 2} 90 L{at(i) + BOX // 2} 134"))
    lines.append(text(LEFT + 12 * (BOX + GAP) + 14, 118, "one small read per sample", "note"))
    lines.append(f'<path d="M24 192 H{WIDTH - 24}" class="rule"/>')
    lines += [text(24, 222, "lcache", "head")]
    lines += [text(24, 262, "log of this epoch"), *framed(242, "read in large pieces"), *row(242, ORDER)]
    lines.append(arrow(f"M{at(2)} 280 V306"))
    middle = 12 * (BOX + GAP) - GAP + 12
    lines.append(f'<rect x="{LEFT - 6}" y="310" width="{middle}" height="44" rx="8" class="frame"/>')
    lines.append(text(LEFT + 14, 337, "shared memory: every checksum is compared"))
    lines.append(arrow(f"M{LEFT + middle - 2} 332 h46"))
    lines.append(text(LEFT + middle + 52, 329, "training", "") + text(LEFT + middle + 52, 348, "without a copy", "note"))
    lines.append(arrow(f"M{at(2)} 354 V388"))
    lines.append(text(at(2) + 12, 376, "each sample is also written to its position in the next order", "note"))
    lines += [text(24, 418, "log of the next epoch"), *framed(398, "written in large pieces"), *row(398, NEXT, MOVED)]
    return lines


def main():
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title">')
    print('<title id="title">Plain files are read one by one in the shuffled order. The log of lcache already has the samples in that order,'
          " and lcache also writes each sample to the log of the next epoch.</title>")
    print(f"<style>{STYLE}</style>")
    print('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs>')
    print(f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" class="page"/>')
    print("\n".join(picture()))
    print("</svg>")


if __name__ == "__main__":
    main()
