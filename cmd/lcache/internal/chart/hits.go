package chart

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lcache/cmd/lcache/internal/hitratio"
)

// lines are the policies as they are drawn, in the order of the legend.
var lines = []struct {
	policy, name string
	color        color.RGBA
}{
	{"min", "MIN, all epochs known", color.RGBA{0x00, 0x00, 0x00, 255}},
	{"next-use", "next use", color.RGBA{0x00, 0x9e, 0x73, 255}},
	{"planned-next-use", "next use, planned", color.RGBA{0x66, 0x33, 0x99, 255}},
	{"planned", "paper, planned", color.RGBA{0xe6, 0x9f, 0x00, 255}},
	{"substitutes", "paper, substitutes", color.RGBA{0xcc, 0x79, 0xa7, 255}},
	{"paper", "the paper's", color.RGBA{0xd5, 0x5e, 0x00, 255}},
	{"packages", "the paper's, with packages", color.RGBA{0x8c, 0x56, 0x4b, 255}},
	{"minio", "MinIO", color.RGBA{0x56, 0xb4, 0xe9, 255}},
	{"lru", "LRU", color.RGBA{0x00, 0x72, 0xb2, 255}},
}

// plainName names LRU under permutations of all samples: a training without importance.
const plainName = "LRU, permutations"

var plainColor = color.RGBA{0x99, 0x99, 0x99, 255}

// hitsCaption explains the picture of hit ratios, line by line. A line fits under one panel and the legend.
var hitsCaption = []string{
	"Height: requests served from memory, without a read of the disk; higher is better.",
	"Colours: the policy that chooses the samples in memory.",
	"Substitutes and samples of loaded packages count as served. In panels",
	"with \"hits alone dashed\", a dashed line counts neither.",
	"MIN knows all epochs: no policy has more hits. Grey: training without importance.",
}

const hitsLegend = 5 * vg.Centimeter

// SaveHits draws a report of hit ratios into a file, which is replaced: the figures of the papers.
func SaveHits(r *hitratio.Report, path string) error {
	if err := Check(path); err != nil {
		return err
	}
	return save(path, func(w io.Writer) error { return DrawHits(r, filepath.Ext(path), w) })
}

// DrawHits writes the picture of a report of hit ratios, as ".svg" or ".png".
func DrawHits(r *hitratio.Report, format string, w io.Writer) error {
	var panels []*plot.Plot
	for _, p := range []struct {
		title, method string
		rep           float64
	}{{"ImPACT, as its Fig. 20", "impact", 1}, {"SHADE, as its Fig. 12", "shade", 1}, {"SHADE, cached samples three times as often", "shade", 3}, {"SpiderCache, as its Fig. 14", "spider", 1}} {
		if !slices.ContainsFunc(r.Curves, func(c hitratio.Curve) bool { return c.Method == p.method && c.Rep == p.rep }) {
			continue
		}
		panel, err := hits(r, p.title, p.method, p.rep)
		if err != nil {
			return fmt.Errorf("draw %s: %w", p.title, err)
		}
		panels = append(panels, panel)
	}
	unstable, err := unstable(r)
	if err != nil {
		return fmt.Errorf("draw the share of unstable samples: %w", err)
	}
	panels = slices.Insert(panels, 1, unstable)
	added, err := added(r)
	if err != nil {
		return fmt.Errorf("draw the parts of ImPACT: %w", err)
	}
	if panels = slices.Insert(panels, 1, added); len(r.Ratios) > 0 {
		panel, err := ratios(r)
		if err != nil {
			return fmt.Errorf("draw the ratio of the caches: %w", err)
		}
		panels = append(panels, panel)
	}
	return write(panels, hitsLegend, hitsLegendOf, hitsCaption, format, w)
}

// hits draws one method: the share of requests that memory serves, by the size of memory.
func hits(r *hitratio.Report, title, method string, rep float64) (*plot.Plot, error) {
	p := share(title, "memory, of all samples")
	for _, c := range r.Curves {
		if c.Method == hitratio.Plain && c.Policy == "lru" {
			if err := add(p, c, plainColor, nil); err != nil {
				return nil, err
			}
		}
	}
	for _, line := range slices.Backward(lines) {
		for _, c := range r.Curves {
			if c.Method != method || c.Rep != rep || c.Policy != line.policy || line.policy == "packages" { // packages has a panel of its own
				continue
			}
			if err := add(p, c, line.color, dashes(line.policy)); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func dashes(policy string) []vg.Length {
	if policy == "min" {
		return []vg.Length{vg.Points(4), vg.Points(3)}
	}
	return nil
}

// add draws a curve. Substitutes and samples of loaded packages count, because memory serves them, too.
func add(p *plot.Plot, c hitratio.Curve, of color.RGBA, dashes []vg.Length) error {
	var at plotter.XYs
	for _, point := range c.Points {
		at = append(at, plotter.XY{X: 100 * point.Cache, Y: 100 * (point.Hits + point.Loaded + point.Substituted)})
	}
	return join(p, at, of, dashes)
}

func join(p *plot.Plot, at plotter.XYs, of color.RGBA, dashes []vg.Length) error {
	line, points, err := plotter.NewLinePoints(at)
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: of, Width: vg.Points(1.4), Dashes: dashes}
	points.GlyphStyle = draw.GlyphStyle{Color: of, Radius: vg.Points(1.8), Shape: draw.CircleGlyph{}}
	p.Add(line, points)
	return nil
}

// share is a panel of two axes in percent.
func share(title, x string) *plot.Plot {
	p := titled(title)
	p.X.Label.Text, p.Y.Label.Text = x+" (%)", "requests that memory serves (%)"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 100, 0, 100
	p.Add(grid())
	return p
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.RGBA{0xee, 0xee, 0xee, 255}, color.RGBA{0xee, 0xee, 0xee, 255}
	return g
}

// added draws ImPACT's Fig. 14: LRU and MinIO compared with its H-cache, alone and with packages of the other samples. With packages, a dashed line has the hits of the H-cache.
func added(r *hitratio.Report) (*plot.Plot, error) {
	p := share("ImPACT, as its Fig. 14", "memory, hits alone dashed")
	for _, line := range lines {
		if !slices.Contains([]string{"lru", "minio", "paper", "packages"}, line.policy) {
			continue
		}
		for _, c := range r.Curves {
			if c.Method != "impact" || c.Policy != line.policy {
				continue
			}
			if err := add(p, c, line.color, nil); err != nil {
				return nil, err
			}
			if line.policy != "packages" {
				continue
			}
			var hits plotter.XYs
			for _, point := range c.Points {
				hits = append(hits, plotter.XY{X: 100 * point.Cache, Y: 100 * point.Hits})
			}
			if err := join(p, hits, line.color, []vg.Length{vg.Points(2), vg.Points(2)}); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// unstable draws ImPACT's Fig. 21: the hit ratio by the share of memory for unstable samples.
func unstable(r *hitratio.Report) (*plot.Plot, error) {
	p := share("ImPACT at 20 %, as its Fig. 21", "memory for unstable samples")
	var at plotter.XYs
	for _, s := range r.Unstable {
		at = append(at, plotter.XY{X: 100 * s.Share, Y: 100 * s.Hits})
	}
	for _, line := range lines {
		if line.policy == "paper" {
			return p, join(p, at, line.color, nil)
		}
	}
	return p, nil
}

// ratios draws SpiderCache's Fig. 16: the requests that memory serves, by the share of memory for important samples. Hits alone are dashed.
func ratios(r *hitratio.Report) (*plot.Plot, error) {
	p := share("SpiderCache at 20 %, as its Fig. 16", "memory for important samples, hits alone dashed")
	for _, line := range lines {
		var hits, all plotter.XYs
		for _, at := range r.Ratios {
			if at.Policy == line.policy {
				hits = append(hits, plotter.XY{X: 100 * at.Ratio, Y: 100 * at.Hits})
				all = append(all, plotter.XY{X: 100 * at.Ratio, Y: 100 * (at.Hits + at.Substituted)})
			}
		}
		if len(all) == 0 {
			continue
		}
		if err := join(p, hits, line.color, []vg.Length{vg.Points(2), vg.Points(2)}); err != nil {
			return nil, err
		}
		if err := join(p, all, line.color, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// hitsLegendOf explains the lines of all panels.
func hitsLegendOf(c draw.Canvas) {
	l := newLegend()
	for _, line := range lines {
		l.Add(line.name, &plotter.Line{LineStyle: draw.LineStyle{Color: line.color, Width: vg.Points(1.4), Dashes: dashes(line.policy)}})
	}
	l.Add(plainName, &plotter.Line{LineStyle: draw.LineStyle{Color: plainColor, Width: vg.Points(1.4)}})
	l.Draw(c)
}
