// Package state keeps the importance of one job from epoch to epoch, and draws the job's orders. A [State] receives
// observations, moves to the next epoch with [State.Advance], and keeps the orders of the epochs that are read. It
// can save itself to a file at each boundary, so that a restarted server has the same orders.
//
// It uses package importance for decisions. It has no notion of ranks, requests or bytes of samples. The session
// decides when an epoch is over, and publishes the orders. Only one goroutine at a time may use a State.
package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/internal/jsonbytes"

	"github.com/dustin/go-humanize"
)

// Split is the lag of an order in which the samples outside memory are drawn an epoch ahead, and the others when the epoch begins.
const Split = "split"

// Config has the options of a job, with all defaults filled in. The ranks of a job must have equal options.
type Config struct {
	Method    string `json:"method"`
	Name      string `json:"name"` // of the job's state, also after restarts
	Cache     int64  `json:"cache"`
	Seed      uint64 `json:"seed"`
	BatchSize int    `json:"batch_size"`
	WorldSize int    `json:"world_size"`
	DropLast  bool   `json:"drop_last"`
	Lag       string `json:"lag"` // "0", "1" or Split
	// Substitute is what may be served in place of a sample: substitute.Low, substitute.Class, or "" for nothing.
	Substitute string            `json:"substitute,omitempty"`
	Policy     string            `json:"policy"`
	Draw       draw.Draw         `json:"draw"`
	Params     importance.Params `json:"params"`
	Ignored    []string          `json:"-"`                // given parameters without an effect
	Client     map[string]string `json:"client,omitempty"` // parameters that only the training process uses
}

// Defaults are the values of keys that a client's text leaves out.
type Defaults struct {
	Cache                int64 // bytes; -1: the caller sets it after Parse
	Seed                 string
	BatchSize, WorldSize int
	DropLast             bool
	Lag                  string
}

// mostRanks is the maximum number of ranks that share an epoch. Schedules keep the orders of no more.
const mostRanks = 1024

// names matches valid names of a state, which become a part of a file's name.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// asked is the JSON text of a Config. A null counts as a missing key.
type asked struct {
	Method     string                     `json:"method"`
	Name       *string                    `json:"name"`
	Cache      json.RawMessage            `json:"cache"`
	Seed       json.RawMessage            `json:"seed"`
	BatchSize  *int                       `json:"batch_size"`
	WorldSize  *int                       `json:"world_size"`
	DropLast   *bool                      `json:"drop_last"`
	Substitute *string                    `json:"substitute"`
	Lag        json.RawMessage            `json:"lag"`
	Policy     *string                    `json:"policy"`
	Draw       *string                    `json:"draw"`
	Params     map[string]json.RawMessage `json:"params"`
	Client     map[string]string          `json:"client"`
}

// Parse returns the Config in a client's JSON. It ignores unknown keys, but not unknown parameters.
func Parse(text []byte, d Defaults) (c Config, err error) {
	var a asked
	if err := jsonbytes.Unmarshal(text, &a); err != nil {
		return c, fmt.Errorf("importance: %w", err)
	}
	m, err := importance.Lookup(a.Method)
	if err != nil {
		return c, err
	}
	c = Config{Method: m.Name, Name: or(a.Name, "default"), BatchSize: or(a.BatchSize, d.BatchSize), WorldSize: or(a.WorldSize, max(d.WorldSize, 1)),
		DropLast: or(a.DropLast, d.DropLast), Lag: d.Lag, Policy: or(a.Policy, "next-use"), Draw: draw.Draw(or(a.Draw, string(draw.Systematic))), Params: m.Defaults}
	if err := a.check(c); err != nil {
		return c, err
	}
	if c.Substitute, err = allowedSubstitute(m, or(a.Substitute, "")); err != nil {
		return c, err
	}
	if c.Lag, err = a.lag(c); err != nil {
		return c, err
	}
	if c.Seed, err = seed(bare(a.Seed), d.Seed); err != nil {
		return c, err
	}
	if c.Cache, err = size(bare(a.Cache), d.Cache); err != nil {
		return c, err
	}
	c.Params.Batch, c.Client = c.BatchSize, a.Client
	if err := a.setParams(m, &c); err != nil {
		return c, err
	}
	return c, m.Check(c.Params)
}

// check returns an error if a value that needs no parsing is out of range.
func (a *asked) check(c Config) error {
	switch {
	case !names.MatchString(c.Name) || strings.HasSuffix(c.Name, ".new"): // .new is the suffix of a file that is being written
		return fmt.Errorf("importance: name=%.80q: give 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or a digit", c.Name)
	case c.BatchSize < 1 || c.BatchSize > score.MaxSamples:
		return fmt.Errorf("importance: batch_size is %d: give the number of samples in one batch of one rank, 1 to %d", c.BatchSize, score.MaxSamples)
	case c.WorldSize < 1 || c.WorldSize > mostRanks:
		return fmt.Errorf("importance: world_size is %d: give the number of ranks that share an epoch, 1 to %d", c.WorldSize, mostRanks)
	case len(a.Client) > 16:
		return fmt.Errorf("importance: %d parameters of the client, at most 16", len(a.Client))
	case c.Draw != draw.Systematic && c.Draw != draw.Multinomial:
		return fmt.Errorf("importance: draw=%.80q: give %s or %s", c.Draw, draw.Systematic, draw.Multinomial)
	case !slices.Contains(importance.Policies, c.Policy):
		return fmt.Errorf("importance: policy=%.80q: give %s", c.Policy, strings.Join(importance.Policies, ", "))
	}
	return nil
}

// lag returns the given lag, or the default for the method and the substitute of c. c.Lag is the server's default.
func (a *asked) lag(c Config) (string, error) {
	lag := bare(a.Lag)
	switch {
	case lag != "":
	case c.Substitute == substitute.Low: // any L-sample will do, so no layout ahead is needed
		lag = "0"
	case c.Lag == "1" && c.Method == "impact": // its unstable samples are evaluated just before an epoch begins
		lag = Split
	default:
		lag = c.Lag
	}
	if !slices.Contains([]string{"0", "1", Split}, lag) {
		return lag, fmt.Errorf("importance: lag=%.80s: give 0, 1 or %q", lag, Split)
	}
	if c.Substitute != "" && lag == Split {
		return lag, fmt.Errorf("importance: substitute=%q with lag=%q: the layout made ahead would not match the served order; give lag 0 or 1, or leave substitute out", c.Substitute, Split)
	}
	return lag, nil
}

// setParams sets the parameters that were given for the method.
func (a *asked) setParams(m importance.Method, c *Config) error {
	for _, key := range slices.Sorted(maps.Keys(a.Params)) {
		value := a.Params[key]
		if check := ignored[m.Name][key]; check != nil && bare(value) != "" {
			if err := check(value); err != nil {
				return fmt.Errorf("importance: %s of %s is %.80s: %w", key, m.Name, value, err)
			}
			c.Ignored = append(c.Ignored, key)
			continue
		}
		if err := setParam(m, &c.Params, key, value); err != nil {
			return err
		}
	}
	return nil
}

// allowedSubstitute returns the kind of substitutes that a user allows, if the method has it.
func allowedSubstitute(m importance.Method, asked string) (string, error) {
	if asked == "" || asked == m.Substitute {
		return asked, nil
	}
	if m.Substitute == "" {
		return "", fmt.Errorf("importance: substitute=%.80q: %s serves no sample in place of another one; leave substitute out", asked, m.Name)
	}
	return "", fmt.Errorf("importance: substitute=%.80q: %s knows %q; give that, or leave substitute out", asked, m.Name, m.Substitute)
}

func or[T any](given *T, left T) T {
	if given == nil {
		return left
	}
	return *given
}

// bare returns a JSON number or string as text; "" for null.
func bare(raw json.RawMessage) string {
	text := strings.Trim(string(raw), `"`)
	if text == "null" {
		return ""
	}
	return text
}

// seed returns the given seed of the draws, or the job's seed if that is a number.
func seed(text, job string) (uint64, error) {
	if text == "" {
		n, err := strconv.ParseUint(job, 10, 64)
		if err != nil {
			return 0, nil
		}
		return n, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("importance: seed=%.80s: give a whole number from 0 to 18446744073709551615", text)
	}
	return n, nil
}

func size(text string, left int64) (int64, error) {
	if text == "" {
		return left, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 {
		return 0, fmt.Errorf("importance: cache=%.80s: give a size such as 8GiB", text)
	}
	return int64(n), nil
}

// params has the parameters of each method, by name, with the field that each sets.
var params = map[string]map[string]func(p *importance.Params) any{
	"impact": {
		"beta": func(p *importance.Params) any { return &p.Beta }, "floor": func(p *importance.Params) any { return &p.Floor },
		"s_share": func(p *importance.Params) any { return &p.SShare }, "l_depth": func(p *importance.Params) any { return &p.LDepth }, "overlap": func(p *importance.Params) any { return &p.Overlap },
		"max_warmup": func(p *importance.Params) any { return &p.MaxWarmUp }, "warmup": func(p *importance.Params) any { return &p.WarmUp },
	},
	"shade": {
		"b0": func(p *importance.Params) any { return &p.B0 }, "rep": func(p *importance.Params) any { return &p.Rep },
		"smooth": func(p *importance.Params) any { return &p.Smooth }, "strict": func(p *importance.Params) any { return &p.Strict },
	},
	"spider": {
		"k": func(p *importance.Params) any { return &p.K }, "max_uses": func(p *importance.Params) any { return &p.MaxUses },
		"gamma": func(p *importance.Params) any { return &p.Gamma }, "m": func(p *importance.Params) any { return &p.M },
		"ratio": func(p *importance.Params) any { return &ratio{&p.RatioStart, &p.RatioEnd} },
	},
}

// ignored has parameters that clients may pass but that have no effect. Their values are checked.
var ignored = map[string]map[string]func(value json.RawMessage) error{
	"impact": {"l_share": func(value json.RawMessage) error {
		var share float64
		if err := jsonbytes.Unmarshal(value, &share); err != nil {
			return err
		}
		if !(share >= 0 && share <= 1) {
			return errors.New("give a number from 0 to 1")
		}
		return nil
	}},
	"shade": {"prefetch": func(value json.RawMessage) error { return jsonbytes.Unmarshal(value, new(bool)) }},
}

// ratio is a pair in JSON.
type ratio struct{ start, end *float64 }

func (r *ratio) UnmarshalJSON(b []byte) error {
	var pair []float64
	if err := jsonbytes.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("%d numbers, not 2", len(pair))
	}
	*r.start, *r.end = pair[0], pair[1]
	return nil
}

func setParam(m importance.Method, p *importance.Params, key string, value json.RawMessage) error {
	if string(value) == "null" {
		return nil
	}
	known := params[m.Name]
	to, ok := known[key]
	if !ok {
		return fmt.Errorf("importance: %s has no parameter %.80q: there are %s", m.Name, key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	if err := jsonbytes.Unmarshal(value, to(p)); err != nil {
		return fmt.Errorf("importance: %s of %s is %.80s: %w", key, m.Name, value, err)
	}
	return nil
}

// notCompared are fields that have no effect, or are compared separately.
var notCompared = []string{"Params", "Client", "Ignored", "LShare", "Prefetch"}

// Differs returns the keys in which two configs differ, with both values; "": none.
func (c Config) Differs(o Config) string {
	var texts []string
	for _, pair := range [][2]reflect.Value{{reflect.ValueOf(c), reflect.ValueOf(o)}, {reflect.ValueOf(c.Params), reflect.ValueOf(o.Params)}} {
		for i := range pair[0].NumField() {
			f := pair[0].Type().Field(i)
			a, b := pair[0].Field(i).Interface(), pair[1].Field(i).Interface()
			if !slices.Contains(notCompared, f.Name) && !reflect.DeepEqual(a, b) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" {
					name = strings.ToLower(f.Name)
				}
				texts = append(texts, fmt.Sprintf("%s %v and %v", name, a, b))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Client)) {
		if o.Client[key] != c.Client[key] {
			texts = append(texts, fmt.Sprintf("%.80s %.80s and %.80s", key, c.Client[key], cmp.Or(o.Client[key], "none")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.Client)) {
		if c.Client[key] == "" {
			texts = append(texts, fmt.Sprintf("%.80s none and %.80s", key, o.Client[key]))
		}
	}
	return strings.Join(texts, ", ")
}

// continues reports whether orders drawn with config before remain valid with c. Memory, world size and batch size
// may change between two runs.
func (c Config) continues(before Config) bool {
	c.Cache, c.WorldSize, c.BatchSize, c.DropLast, c.Policy, c.Params.Batch = before.Cache, before.WorldSize, before.BatchSize, before.DropLast, before.Policy, before.Params.Batch
	return c.Differs(before) == ""
}
