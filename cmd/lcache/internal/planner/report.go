package planner

import (
	"errors"
	"fmt"
	"strings"

	"lcache/internal/jsonbytes"
	"lcache/internal/plan"
	"lcache/internal/usage"
)

// Report is a plan as lcache plan shows it.
type Report struct {
	Facts    map[string]any `json:"facts"` // as package plan has them, and "provenance" by the flag's name
	Policies []Row          `json:"policies"`
	Advice   Recommendation `json:"recommendation"`
	WhatIf   []WhatIf       `json:"what_if"`

	Model *plan.Model `json:"-"`
}

// Row is one policy: an epoch that holds all that fits, the best admission, the whole training.
type Row struct {
	plan.Epoch
	Best          plan.Epoch `json:"-"`
	Admit         float64    `json:"admit"`        // the share with which an epoch is shortest
	BestEpochS    float64    `json:"best_epoch_s"` // that epoch
	SmallestCache float64    `json:"smallest_cache_bytes"`
	plan.Run
}

// Recommendation is what to do, with the reason in one sentence.
type Recommendation struct {
	Layout            string     `json:"layout"` // log, static, or none: the source alone is fast enough
	Policy            string     `json:"policy"` // the layout as a row of the table, with its peers
	Reason            string     `json:"reason"`
	SmallestCache     float64    `json:"smallest_cache_bytes"`
	DriveWritesPerDay float64    `json:"drive_writes_per_day"` // of the budget
	Admit             float64    `json:"admit"`
	Copies            float64    `json:"copies,omitempty"` // how often each peer keeps its share of the dataset
	EpochS            float64    `json:"epoch_s"`
	BoundBy           string     `json:"bound_by"`
	NextLimit         string     `json:"next_limit"` // what binds after that, and its time
	NextLimitS        float64    `json:"next_limit_s"`
	MemoryBytes       float64    `json:"memory_bytes"`
	WithoutS          float64    `json:"without_cache_s"`           // an epoch from the source alone
	SecondRun         *SecondRun `json:"second_run,omitempty"`      // of the layout log
	NotYet            string     `json:"not_yet,omitempty"`         // a feature that the advice needs and lcache lacks
	TodayPolicy       string     `json:"today_policy,omitempty"`    // with NotYet: the best that lcache has
	TodayS            float64    `json:"today_s,omitempty"`         // its best epoch
	AloneS            float64    `json:"without_peers_s,omitempty"` // the best epoch of nodes that don't share
	AloneLayout       string     `json:"without_peers_layout,omitempty"`
	NeedsBytes        float64    `json:"needs_bytes,omitempty"` // of memory, where no layout fits
	Error             string     `json:"error,omitempty"`
}

// SecondRun is the choice of a job that begins over a full log in another order.
type SecondRun struct {
	Choice string  `json:"choice"` // sort: the log is sorted into its first epoch; wait: it is read by place
	PlaceS float64 `json:"place_s"`
	SortS  float64 `json:"sort_s"`
	Reason string  `json:"reason"`
}

// WhatIf is the plan with one fact changed.
type WhatIf struct {
	Key     string  `json:"key"`
	Value   string  `json:"value"`
	Layout  string  `json:"layout"`
	Admit   float64 `json:"admit"`
	EpochS  float64 `json:"epoch_s"`
	BoundBy string  `json:"bound_by"`
	LogS    float64 `json:"log_epoch_s"`    // of the log, at its best admission
	StaticS float64 `json:"static_epoch_s"` // of static, at its best admission
	Needs   float64 `json:"needs_bytes,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Change is one fact, and the values that it may have instead.
type Change struct {
	Key    string
	Values []string
}

// ParseChange reads "key=v,v".
func ParseChange(text string) (c Change, err error) {
	key, values, ok := strings.Cut(text, "=")
	if !ok || key == "" || values == "" {
		return c, usage.Errorf("what-if %q: write key=value,value as in source-bw=150MB,1GB", text)
	}
	c = Change{Key: key, Values: strings.Split(values, ",")}
	if key != "sample-size" {
		_, err = field(key)
	}
	return c, err
}

// Report computes the plan of facts, and what changes would do to it.
func (f *Facts) Report(changes []Change) (*Report, error) {
	m, err := f.Model()
	if err != nil {
		return nil, err
	}
	r := &Report{Model: m, Facts: f.document(m), WhatIf: []WhatIf{}}
	for _, p := range plan.Policies(m.Facts().Nodes) {
		row := Row{Epoch: m.Epoch(p), Run: m.Run(p), SmallestCache: m.SmallestCache(p)}
		row.Admit, row.Best = m.BestAdmission(p)
		row.BestEpochS = row.Best.EpochS
		r.Policies = append(r.Policies, row)
	}
	if r.Advice, err = recommend(m); err != nil {
		return nil, err
	}
	for _, c := range changes {
		for _, value := range c.Values {
			w, err := f.whatIf(c.Key, value)
			if err != nil {
				return nil, err
			}
			r.WhatIf = append(r.WhatIf, w)
		}
	}
	return r, nil
}

// document is the facts as JSON has them.
func (f *Facts) document(m *plan.Model) map[string]any {
	doc := map[string]any{}
	text, err := jsonbytes.Marshal(m.Facts())
	if err == nil {
		err = jsonbytes.Unmarshal(text, &doc)
	}
	if err != nil {
		doc["error"] = err.Error() // facts are numbers that package plan has checked: this can't be
	}
	doc["provenance"] = f.From
	return doc
}

// recommend says which layout, or that no cache is needed. That no layout fits into memory is an answer, too.
func recommend(m *plan.Model) (Recommendation, error) {
	source := m.Epoch(plan.SourceOnly)
	a, err := m.Auto()
	e := a.Chosen()
	rec := Recommendation{Layout: string(a.Layout), Policy: string(e.Policy), Reason: a.Reason, SmallestCache: a.SmallestCache, Admit: e.Hit, Copies: e.Copies, EpochS: e.EpochS, BoundBy: e.BoundBy, MemoryBytes: e.MemoryBytes, WithoutS: source.EpochS}
	rec.NextLimit, rec.NextLimitS = nextLimit(e)
	if a.Layout == plan.Log {
		choice, place, sort, why := m.Beginning().Decide()
		rec.SecondRun = &SecondRun{choice.String(), place, sort, why}
	}
	if budget := m.Facts().CacheBytes; budget > 0 {
		rec.DriveWritesPerDay = a.WritesPerDay / budget
	}
	if source.StallS == 0 && source.EpochS > 0 {
		rec = Recommendation{Layout: "none", EpochS: source.EpochS, WithoutS: source.EpochS, BoundBy: source.BoundBy, MemoryBytes: source.MemoryBytes,
			Reason: "don't bother: the source alone is as fast as the training takes its samples"}
		rec.NextLimit, rec.NextLimitS = nextLimit(source)
		return rec, nil
	}
	var small *plan.MemoryError
	if errors.As(err, &small) {
		rec.Layout, rec.Error, rec.NeedsBytes = "none", err.Error(), small.Needs
		return rec, nil
	}
	if err == nil {
		err = rec.addAlone(m)
	}
	return rec, err
}

// addAlone adds what nodes would do that can't read from each other, and the best that can be had today.
func (r *Recommendation) addAlone(m *plan.Model) error {
	f := m.Facts()
	if f.Nodes <= 1 || f.WithoutPeers {
		return nil
	}
	f.WithoutPeers = true
	alone, err := plan.New(f)
	if err != nil {
		return err
	}
	if a, err := alone.Auto(); err == nil {
		r.AloneS, r.AloneLayout = a.Chosen().EpochS, string(a.Layout)
	}
	if r.Policy != string(plan.PeerLog) {
		return nil
	}
	r.NotYet = "lcache does not reorder a log over several nodes yet"
	if _, e := m.BestAdmission(plan.PeerStatic); e.Fits {
		r.TodayPolicy, r.TodayS = string(plan.PeerStatic), e.EpochS
	}
	if r.AloneLayout != "" && (r.TodayPolicy == "" || r.AloneS < r.TodayS) {
		r.TodayPolicy, r.TodayS = r.AloneLayout, r.AloneS
	}
	return nil
}

// nextLimit is the slowest of what does not bind an epoch.
func nextLimit(e plan.Epoch) (name string, seconds float64) {
	for _, other := range []struct {
		name    string
		seconds float64
	}{{"consumer", e.Seconds.Consumer}, {"disk", e.Seconds.Disk}, {"source", e.Seconds.Source}, {"network", e.Seconds.Network}, {"decode", e.Seconds.Decode}} {
		if other.seconds > seconds && other.seconds < e.EpochS*(1-1e-6) {
			name, seconds = other.name, other.seconds
		}
	}
	return name, seconds
}

// whatIf is the recommendation with one fact changed.
func (f *Facts) whatIf(key, value string) (WhatIf, error) {
	other := f.Clone()
	other.inBytes() // the training takes the same bytes per second if samples change their size
	if err := other.Set(key, value, "what if"); err != nil {
		return WhatIf{}, err
	}
	m, err := other.Model()
	if err != nil {
		return WhatIf{}, fmt.Errorf("what if %s=%s: %w", key, value, err)
	}
	rec, err := recommend(m)
	if err != nil {
		return WhatIf{}, err
	}
	w := WhatIf{Key: key, Value: value, Layout: rec.Layout, Admit: rec.Admit, EpochS: rec.EpochS, BoundBy: rec.BoundBy, Needs: rec.NeedsBytes, Error: rec.Error}
	if a, err := m.Auto(); err == nil {
		w.LogS, w.StaticS = a.Log.EpochS, a.Static.EpochS
	}
	return w, nil
}
