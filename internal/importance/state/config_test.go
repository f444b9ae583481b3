package state

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

func newBuffered(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

// TestRefusedConfigs: an invalid option is refused, with its name and valid values.
func TestRefusedConfigs(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                   "importance",
		`{"method":"impakt"}`: "did you mean impact",
		`{"method":"impact","substitute":"class"}`:                    `impact knows "low"; give that, or leave substitute out`,
		`{"method":"impact","substitute":true}`:                       "importance",
		`{"method":"spider","substitute":"low"}`:                      `spider knows "class"`,
		`{"method":"shade","substitute":"low"}`:                       "shade serves no sample in place of another one",
		`{"method":"impact","substitute":"low","lag":"split"}`:        "give lag 0 or 1",
		`{"method":"impact","name":"../a"}`:                           "name=",
		`{"method":"impact","name":"a.new"}`:                          "name=",
		`{"method":"impact","batch_size":0}`:                          "batch_size is 0",
		`{"method":"impact","world_size":-1}`:                         "world_size is -1",
		`{"method":"impact","lag":2}`:                                 "lag=2: give 0, 1",
		`{"method":"impact","policy":"fifo"}`:                         "policy=",
		`{"method":"impact","draw":"x"}`:                              "draw=",
		`{"method":"impact","seed":-1}`:                               "seed=-1",
		`{"method":"impact","cache":"much"}`:                          "give a size",
		`{"method":"impact","params":{"rep":3}}`:                      "impact has no parameter \"rep\": there are beta",
		`{"method":"impact","params":{"beta":"x"}}`:                   "beta of impact",
		`{"method":"impact","params":{"beta":-1}}`:                    "beta of impact is -1",
		`{"method":"spider","params":{"ratio":[1]}}`:                  "ratio of spider",
		`{"method":"shade","params":{"b0":null,"strict":true,"x":1}}`: "no parameter \"x\"",
	} {
		if _, err := Parse([]byte(text), Defaults{BatchSize: 1, Lag: "0"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestConfig: options that are left out get the defaults. Differs names the options in which two configs differ.
func TestConfig(t *testing.T) {
	c := config(t, `{"method":"spider","cache":"1KiB","seed":null,"lag":null,"params":{"ratio":[0.7,0.6],"k":9,"gamma":null}}`)
	if c.Name != "default" || c.Cache != 1024 || c.Seed != 7 || c.Lag != "0" || c.Policy != "next-use" || c.Params.RatioEnd != 0.6 || c.Params.K != 9 || c.Params.Gamma != 0.01 || c.Params.Batch != 20 {
		t.Errorf("%+v", c)
	}
	o := c
	c.Client = map[string]string{"lam": "1", "normalise": "False"}
	o.Params.K, o.Seed, o.Client = 10, 8, map[string]string{"lam": "2", "alpha": "0.5"}
	if got := c.Differs(o); got != "seed 7 and 8, k 9 and 10, lam 1 and 2, normalise False and none, alpha none and 0.5" {
		t.Errorf("differs: %q", got)
	}
	if got := c.Differs(c); got != "" {
		t.Errorf("differs from itself: %q", got)
	}
}

// TestIgnoredParams: a parameter without effect is checked and listed, and makes no difference between two configs.
func TestIgnoredParams(t *testing.T) {
	for text, want := range map[string]string{
		`{"method":"impact","params":{"l_share":0.2}}`:     "l_share",
		`{"method":"impact","params":{"l_share":null}}`:    "",
		`{"method":"shade","params":{"prefetch":false}}`:   "prefetch",
		`{"method":"shade","params":{"strict":true}}`:      "",
		`{"method":"impact","params":{"l_share":2}}`:       "l_share of impact is 2: give a number from 0 to 1",
		`{"method":"impact","params":{"l_share":"half"}}`:  "l_share of impact",
		`{"method":"shade","params":{"prefetch":"often"}}`: "prefetch of shade",
		`{"method":"shade","params":{"l_share":0.2}}`:      "shade has no parameter",
	} {
		c, err := Parse([]byte(text), Defaults{BatchSize: 1, Lag: "0"})
		switch {
		case err != nil && !strings.Contains(err.Error(), want), err == nil && strings.Join(c.Ignored, ", ") != want:
			t.Errorf("%s: %q, %v, want %q", text, c.Ignored, err, want)
		case err == nil:
			plain := c
			if plain.Ignored = nil; plain.Differs(c) != "" {
				t.Errorf("%s differs from a config without it: %s", text, plain.Differs(c))
			}
		}
	}
}

// TestSubstituteConfig: with substitutes, no layout is made ahead unless the user asks for it. A job that allows them
// is not the same job as one that does not.
func TestSubstituteConfig(t *testing.T) {
	for text, want := range map[string][2]string{
		`{"method":"impact"}`:                            {"", Split},
		`{"method":"impact","substitute":""}`:            {"", Split},
		`{"method":"impact","substitute":"low"}`:         {"low", "0"},
		`{"method":"impact","substitute":"low","lag":1}`: {"low", "1"},
		`{"method":"spider","substitute":"class"}`:       {"class", "1"},
	} {
		c, err := Parse([]byte(text), Defaults{BatchSize: 1, Lag: "1"})
		if err != nil || c.Substitute != want[0] || c.Lag != want[1] {
			t.Errorf("%s: %v, substitute %q, lag %s", text, err, c.Substitute, c.Lag)
		}
	}
	c, o := config(t, `{"method":"impact","substitute":"low"}`), config(t, `{"method":"impact"}`)
	if got := c.Differs(o); got != "substitute low and " || c.continues(o) {
		t.Errorf("differs: %q", got)
	}
}

// FuzzParse: whatever a client sends, an accepted config has numbers within bounds.
func FuzzParse(f *testing.F) {
	for _, text := range methods {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b, Defaults{BatchSize: 1, Lag: "0"})
		if err == nil && (c.BatchSize < 1 || c.WorldSize < 1 || c.Cache < 0 || strings.ContainsAny(c.Name, "/\x00")) {
			t.Errorf("%s gave %+v", b, c)
		}
	})
}
