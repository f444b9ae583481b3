// Package chart draws the results of simulations: run times of policies, as Fig. 8 of the NoPFS paper, or hit ratios, as the papers about importance.
//
// Save draws a report of package scenario into a file, SVG or PNG by its name. Each scenario is a panel, and each policy is a bar. The height
// of a bar is the duration of the training. Its colours split that by where samples were fetched from, in proportion to the time of the fetches.
// A dashed line is the lower bound, computing alone. A policy that refuses the scenario, or reads only part of the dataset, has a label on its
// bar. SaveHits draws a report of package hitratio: hit ratios by the size of memory. gonum/plot does the drawing. Save and SaveHits may be
// called concurrently.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"lcache/cmd/lcache/internal/scenario"
	"lcache/internal/usage"
)

// Sizes of the picture.
const (
	panelWidth  = 9 * vg.Centimeter
	panelHeight = 8 * vg.Centimeter
	legendWidth = 4 * vg.Centimeter
	margin      = 4 * vg.Millimeter
	barWidth    = 4.2 * vg.Millimeter
	mostPanels  = 36

	captionLine = 4.5 * vg.Millimeter
)

// caption explains the picture of a report, line by line. A line fits under one panel and the legend.
var caption = []string{
	"Height: duration of the training; lower is better.",
	"Colours: where samples were fetched from, by time spent fetching.",
	"Fetching overlaps computing: a bar that is mostly one colour",
	"need not be limited by that place.",
	"Dashed: the lower bound, computing alone.",
}

// parts are the sections of a bar, from bottom to top. Readers with colour blindness can distinguish their colours, which Okabe and Ito chose.
var parts = []struct {
	name  string
	color color.RGBA
	of    func(r scenario.Result) float64
}{
	{"filling before training", color.RGBA{0x99, 0x99, 0x99, 255}, func(r scenario.Result) float64 { return r.InitS }},
	{"own memory", color.RGBA{0x00, 0x9e, 0x73, 255}, func(r scenario.Result) float64 { return part(r, r.FetchS.RAM) }},
	{"own SSD", color.RGBA{0x56, 0xb4, 0xe9, 255}, func(r scenario.Result) float64 { return part(r, r.FetchS.SSD) }},
	{"other workers", color.RGBA{0xf0, 0xe4, 0x42, 255}, func(r scenario.Result) float64 { return part(r, r.FetchS.Remote) }},
	{"source", color.RGBA{0xd5, 0x5e, 0x00, 255}, func(r scenario.Result) float64 { return part(r, r.FetchS.PFS) }},
	{"nothing fetched", color.RGBA{0xdd, 0xdd, 0xdd, 255}, func(r scenario.Result) float64 {
		if fetches(r) > 0 {
			return 0
		}
		return r.Seconds - r.InitS
	}},
}

func fetches(r scenario.Result) float64 {
	return r.FetchS.RAM + r.FetchS.SSD + r.FetchS.Remote + r.FetchS.PFS
}

// part is a share of the training by its share of the fetches' time.
func part(r scenario.Result, fetch float64) float64 {
	if all := fetches(r); all > 0 {
		return (r.Seconds - r.InitS) * fetch / all
	}
	return 0
}

// Check refuses a file name that Save cannot write.
func Check(path string) error {
	if ext := filepath.Ext(path); ext != ".svg" && ext != ".png" {
		return usage.Errorf("--plot %s: name a file that ends with .svg or .png", path)
	}
	return nil
}

// Save draws a report into a file, which is replaced.
func Save(r *scenario.Report, path string) error {
	if err := Check(path); err != nil {
		return err
	}
	return save(path, func(w io.Writer) error { return Draw(r, filepath.Ext(path), w) })
}

// save writes a file, which is replaced.
func save(path string, draw func(io.Writer) error) error {
	var body bytes.Buffer
	if err := draw(&body); err != nil {
		return err
	}
	if err := os.WriteFile(path, body.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// Draw writes the picture of a report, as ".svg" or ".png".
func Draw(r *scenario.Report, format string, w io.Writer) error {
	if n := len(r.Scenarios); n == 0 || n > mostPanels {
		return usage.Errorf("a picture has 1 to %d scenarios, not %d", mostPanels, n)
	}
	var panels []*plot.Plot
	for _, s := range r.Scenarios {
		p, err := panel(s)
		if err != nil {
			return fmt.Errorf("draw %s: %w", s.Name, err)
		}
		panels = append(panels, p)
	}
	return write(panels, legendWidth, legend, caption, format, w)
}

// write writes panels next to each other, with a legend of a given width to their right and a caption below.
func write(panels []*plot.Plot, right vg.Length, legend func(draw.Canvas), caption []string, format string, w io.Writer) error {
	columns := min(len(panels), 1+int(math.Sqrt(float64(len(panels)))))
	rows := (len(panels) + columns - 1) / columns
	below := captionLine * vg.Length(len(caption))
	width, height := panelWidth*vg.Length(columns)+right, panelHeight*vg.Length(rows)+below
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if format == ".png" {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(110))}
	} else {
		canvas = vgsvg.New(width, height)
	}
	dc := draw.New(canvas)
	dc.FillPolygon(color.White, rectangle(dc.Rectangle)) // for pages with a dark ground
	ground := draw.Crop(dc, 0, -right, below, 0)
	tiles := draw.Tiles{Cols: columns, Rows: rows, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin, PadX: margin, PadY: margin}
	for i, p := range panels {
		p.Draw(tiles.At(ground, i%columns, i/columns))
	}
	legend(draw.Crop(dc, width-right, 0, 0, -2*margin))
	for i, line := range caption {
		dc.FillText(smallText(), vg.Point{X: 2 * margin, Y: below - captionLine*vg.Length(i)}, line)
	}
	var body bytes.Buffer
	if _, err := canvas.WriteTo(&body); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	if _, err := w.Write(withFallback(body.Bytes())); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// withFallback adds fonts that nearly every machine has, after the one that the letters were measured with.
func withFallback(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans', Arial, Helvetica, sans-serif"))
}

// panel is one scenario.
func panel(s scenario.Results) (*plot.Plot, error) {
	p := titled(s.Title)
	per, unit := unitOf(s)
	p.Y.Label.Text, p.Y.Min = "duration, "+unit, 0
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/3, draw.XRight, draw.YCenter
	var names []string
	for _, r := range s.Policies {
		names = append(names, strings.ReplaceAll(string(r.Policy), "_", " "))
	}
	var below *plotter.BarChart
	for _, kind := range parts {
		values := make(plotter.Values, len(s.Policies))
		for i, r := range s.Policies {
			values[i] = max(0, kind.of(r)) / per
		}
		bars, err := plotter.NewBarChart(values, barWidth)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = kind.color, 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
	}
	bound := plotter.NewFunction(func(float64) float64 { return s.LowerBoundS / per })
	bound.LineStyle = boundStyle()
	p.Add(bound)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Max *= 1.25 // room for the labels above bars
	return p, label(p, s, per)
}

// titled is an empty panel.
func titled(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Variant, style.Font.Size = "Sans", 9
	}
	p.Title.TextStyle.Font.Size = 10
	return p
}

// label labels the bars of policies that refuse the scenario or read only part of the dataset.
func label(p *plot.Plot, s scenario.Results, per float64) error {
	var at plotter.XYLabels
	for i, r := range s.Policies {
		height, words := r.Seconds/per, ""
		switch {
		case r.Refuses():
			words = "refuses"
		case r.DatasetSeen < 0.995:
			words = fmt.Sprintf("reads %.0f %%", 100*r.DatasetSeen)
		}
		if words != "" {
			at.XYs = append(at.XYs, plotter.XY{X: float64(i), Y: height + p.Y.Max/50})
			at.Labels = append(at.Labels, words)
		}
	}
	if len(at.Labels) == 0 {
		return nil
	}
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Rotation, labels.TextStyle[i].YAlign = math.Pi/2, draw.YCenter
		labels.TextStyle[i].Font.Variant, labels.TextStyle[i].Font.Size = "Sans", 8
	}
	p.Add(labels)
	return nil
}

func boundStyle() draw.LineStyle {
	return draw.LineStyle{Color: color.Black, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
}

// unitOf is a unit that suits the durations of a scenario.
func unitOf(s scenario.Results) (per float64, name string) {
	longest := s.LowerBoundS
	for _, r := range s.Policies {
		longest = max(longest, r.Seconds)
	}
	switch {
	case longest > 7200:
		return 3600, "hours"
	case longest > 120:
		return 60, "minutes"
	}
	return 1, "seconds"
}

// legend explains the parts of all bars.
func legend(c draw.Canvas) {
	l := newLegend()
	for i := len(parts) - 1; i >= 0; i-- {
		l.Add(parts[i].name, swatch(parts[i].color))
	}
	line := &plotter.Line{LineStyle: boundStyle()}
	l.Add("lower bound", line)
	l.Draw(c)
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle = smallText()
	l.Padding = vg.Points(3)
	return l
}

func smallText() text.Style {
	style := text.Style{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Variant, style.Font.Size = "Sans", 9
	return style
}

// swatch is a patch of colour in the legend.
type swatch color.RGBA

// Thumbnail fills the canvas of a legend's entry.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(color.RGBA(s), rectangle(c.Rectangle))
}

func rectangle(r vg.Rectangle) []vg.Point {
	return []vg.Point{{X: r.Min.X, Y: r.Min.Y}, {X: r.Min.X, Y: r.Max.Y}, {X: r.Max.X, Y: r.Max.Y}, {X: r.Max.X, Y: r.Min.Y}}
}
