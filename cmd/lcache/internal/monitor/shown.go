package monitor

import (
	"fmt"
	"strings"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// shown is one server as the page shows it. All texts are ready to be read: the page computes nothing.
type shown struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Pid      int               `json:"pid"`
	Error    string            `json:"error,omitempty"` // the server does not answer
	Headline overview.Headline `json:"headline"`
	Progress string            `json:"progress"`
	Share    float64           `json:"share"` // of the epoch; below 0: not known
	Warnings []string          `json:"warnings"`
	Tiles    []tile            `json:"tiles"`
	Who      string            `json:"who"` // whose waits the chart has
	Tables   []table           `json:"tables"`
	Facts    []tile            `json:"facts"`
	Events   []status.Event    `json:"events"`
	Point    [][]*float64      `json:"point"` // the last one, or none
}

// tile is a name and its value.
type tile struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// table has a head; a column whose name begins with ~ is left out on narrow screens, one with # has numbers, and one with % shares.
type table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

const (
	mostEpochs = 20
	mostRanks  = 64
)

// show returns a server as the page shows it. name is that of lcache run; "": the dataset's.
func show(name string, v overview.View, points []point) shown {
	d := v.Now
	s := shown{Name: usage.Name(name), Version: d.Version, Pid: d.Pid, Headline: v.Headline(), Share: -1, Warnings: []string{}, Tiles: []tile{}, Who: "loop waited", Events: d.Events, Point: columns(points[max(len(points)-1, 0):])}
	if s.Events == nil {
		s.Events = []status.Event{}
	}
	for _, w := range v.Warnings() {
		s.Warnings = append(s.Warnings, strings.TrimPrefix(w, "! "))
	}
	if len(d.Jobs) > 0 {
		if name == "" {
			s.Name = usage.Name(d.Jobs[0].Name)
		}
		s.dataset(v)
	}
	live, ended := v.Jobs()
	if len(live) > 0 {
		s.now(v, live[0], points)
	}
	s.ranks(v, live)
	s.jobs(v, live, ended)
	s.epochs(live)
	s.devices(d.Cache)
	s.peers(d.Cluster)
	return s
}

// now shows the progress and the rates of the first job.
func (s *shown) now(v overview.View, job status.Job, points []point) {
	was := v.Earlier(job)
	s.Progress = strings.Join(kept(overview.ProgressFacts(v, was, job)), " · ")
	if position, of := overview.Position(job); of > 0 {
		s.Share = min(position/of, 1)
	}
	who, waited := overview.LoopWait(v, was, job)
	s.Who = who
	delivered := units.Rate(v.Now.Totals.BytesDelivered-v.Before.Totals.BytesDelivered, v.Seconds)
	if n := len(points); n > 0 {
		delivered = units.Rate(int64(points[n-1].Delivered), 1)
	}
	s.Tiles = []tile{
		{who, waited},
		{"delivered", delivered},
		{"samples a second", units.PerSecond(v.Now.Totals.SamplesDelivered-v.Before.Totals.SamplesDelivered, v.Seconds)},
		{"hits in this epoch", units.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch))},
		{"batches ready", units.Count(int64(job.ReadyBatches))},
		{"source in this epoch", units.Bytes(job.SourceBytesEpoch)},
	}
}

// dataset shows the dataset, its layout, and the memory and disk space that it uses.
func (s *shown) dataset(v overview.View) {
	d, j := v.Now, v.Now.Jobs[0]
	memory := units.Bytes(d.MemoryBytes)
	if d.MemoryLimitBytes > 0 {
		memory = units.OfTotal(d.MemoryBytes, d.MemoryLimitBytes)
	}
	s.Facts = []tile{{"layout", strings.TrimSuffix(j.Layout+": "+j.LayoutReason, ": ")},
		{"source", usage.Name(j.Source)},
		{"dataset", units.Plural(int64(j.Samples), "sample", "samples") + " · " + units.Bytes(j.DatasetBytes)},
		{"disk space", units.Bytes(d.Cache.UsedBytes) + " of " + units.Bytes(d.Cache.BudgetBytes)},
		{"memory", memory + ", " + units.Bytes(d.RSS) + " resident"},
	}
	if w := d.Cache.Wear; w.WrittenPerDay > 0 {
		text := units.Bytes(w.WrittenPerDay) + " written per day"
		if w.DriveWritesPerDay > 0 {
			text += fmt.Sprintf(" · %.2g drive writes", w.DriveWritesPerDay)
		}
		if w.EndurancePerDay > 0 {
			text += " · rated for " + units.Bytes(w.EndurancePerDay)
		}
		s.Facts = append(s.Facts, tile{"write volume", text})
	}
	s.Facts = append(s.Facts, tile{"uptime", units.Duration(d.UptimeSeconds)})
}

// ranks shows where each rank is, and how often its batches were ready when requested.
func (s *shown) ranks(v overview.View, live []status.Job) {
	t := table{Title: "Ranks", Head: []string{"rank", "%readiness", "#batch", "#waited", "~#memory", "~#pid"}}
	for _, job := range live {
		for _, r := range job.Ranks {
			if len(t.Rows) == mostRanks {
				break
			}
			name := fmt.Sprint(r.Rank)
			if len(live) > 1 {
				name = overview.JobName(job) + " " + name
			}
			ready := "–"
			if r.Readiness != nil {
				ready = units.Percent(*r.Readiness, 1)
			}
			cells := overview.RankCells(job, r) // rank, pid, batch, waited, memory
			t.Rows = append(t.Rows, []string{name, ready, cells[2], cells[3], cells[4], cells[1]})
		}
	}
	s.add(t)
}

func (s *shown) jobs(v overview.View, live, ended []status.Job) {
	if len(live)+len(ended) < 2 {
		return
	}
	t := table{Title: "Jobs", Head: []string{"job", "#epoch", "~#batch", "#done", "#MB/s", "#waited", "bottleneck"}}
	for _, job := range live {
		was := v.Earlier(job)
		epoch, batch, done, _ := overview.Progress(v, was, job)
		_, waited := overview.LoopWait(v, was, job)
		rate := "–"
		if v.Seconds > 0 {
			rate = overview.Megabytes(float64(job.BytesDelivered-was.BytesDelivered) / v.Seconds)
		}
		t.Rows = append(t.Rows, []string{overview.JobName(job), epoch, batch, done, rate, waited, overview.Bottleneck(job)})
	}
	for _, job := range ended {
		t.Rows = append(t.Rows, []string{overview.JobName(job), fmt.Sprint(job.Epoch), "", "ended", "", "", ""})
	}
	s.add(t)
}

func (s *shown) epochs(live []status.Job) {
	if len(live) == 0 {
		return
	}
	t := table{Title: "Epochs", Head: []string{"epoch", "#time", "#MB/s", "#hits", "#source", "~#read", "~#written", "#waited", "~order"}}
	done := live[0].EpochsDone
	for i := len(done) - 1; i >= 0 && len(t.Rows) < mostEpochs; i-- {
		t.Rows = append(t.Rows, overview.EpochCells(fmt.Sprint(done[i].Epoch), done[i], live[0]))
	}
	s.add(t)
}

func (s *shown) devices(c status.Cache) {
	t := table{Title: "Devices", Head: []string{"directory", "state", "#written", "#errors", "~last error"}}
	for _, d := range c.Devices {
		state := d.State
		if state == "aside" {
			state = "quarantined"
		}
		t.Rows = append(t.Rows, []string{usage.Name(d.Dir), state, units.Bytes(d.Blocks * c.BlockBytes), units.Count(d.Errors), usage.Message(d.LastError)})
	}
	s.add(t)
}

func (s *shown) peers(c status.Cluster) {
	t := table{Title: "Machines", Head: []string{"machine", "state", "#room", "~layout", "~address"}}
	for _, p := range c.Peers {
		t.Rows = append(t.Rows, []string{usage.Name(p.Host), p.State, units.Percent(p.RoomShare, 1), p.Layout, p.Address})
	}
	s.add(t)
}

func (s *shown) add(t table) {
	if len(t.Rows) > 0 {
		s.Tables = append(s.Tables, t)
	}
}

func kept(facts []string) (some []string) {
	for _, f := range facts {
		if f != "" {
			some = append(some, f)
		}
	}
	return some
}
