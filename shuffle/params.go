package shuffle

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"lcache/internal/usage"
)

// Param describes one parameter of a recipe.
type Param struct {
	Name    string
	Type    Type
	Default string   // in the form of the command line; "" and not Required: absent, which Python calls None
	Values  []string // allowed values of a Word; empty: any
	Meaning string

	Required bool

	refuse map[string]string // values that cannot be replayed, with the reason
}

// Limits of parameters. Indices are uint32, and a Replay must not allocate more than an
// epoch of those, whatever it is given.
const (
	maxSamples = math.MaxUint32
	maxRanks   = math.MaxInt32
	maxFree    = 1 << 28 // samples an epoch, whatever the size of the dataset
	maxEpoch   = 1 << 24 // if each epoch continues from the previous one
	maxDigits  = 100_000 // of a seed
	maxFile    = 1 << 34 // bytes of a parameter's file: 2^32 indices
)

// field names of Spec, as the vectors and the command line call them.
const (
	paramSamples  = "n"
	paramSeed     = "seed"
	paramBatch    = "batch_size"
	paramWorld    = "world"
	paramDropLast = "drop_last"
)

// flags are the parameters that have a field of Spec, and a flag of the command line, of their own.
var flags = map[string]string{
	paramSamples: "--samples", paramSeed: "--seed", paramBatch: "--batch-size",
	paramWorld: "--world-size", paramDropLast: "--drop-last",
}

// Flag returns the command line's name of the parameter: "--seed", or "--param shuffle=" for one without a flag.
func (p Param) Flag() string {
	if f, ok := flags[p.Name]; ok {
		return f
	}
	return "--param " + p.Name + "="
}

// UsageError reports that a Spec, an epoch or a rank is not valid for the recipe, or that the recipe can't be replayed
// with it. If a parameter is unknown, missing or malformed, it lists the recipe's parameters.
type UsageError struct {
	Recipe  string
	Problem string
	Params  []string // the recipe's parameters; nil: the list would not help
}

func (e *UsageError) Error() string {
	var b strings.Builder
	if e.Recipe != "" {
		fmt.Fprintf(&b, "recipe %s: ", e.Recipe)
	}
	b.WriteString(e.Problem)
	if len(e.Params) > 0 {
		between := "; its parameters: "
		if strings.HasSuffix(e.Problem, "?") {
			between = " Its parameters: "
		}
		b.WriteString(between + strings.Join(e.Params, ", "))
	}
	return b.String()
}

// args has the parameters of one Spec, parsed and checked against its recipe.
type args struct {
	recipe *Recipe
	n      int
	batch  int
	world  int
	values map[string]value
}

func (a *args) bool(name string) bool         { return a.values[name].bool }
func (a *args) word(name string) string       { return a.values[name].word }
func (a *args) given(name string) bool        { return a.values[name].set }
func (a *args) int(name string) int           { return int(a.values[name].int) }
func (a *args) big(name string) *big.Int      { return a.values[name].big }
func (a *args) float(name string) float64     { return a.values[name].float }
func (a *args) ints(name string) []uint32     { return a.values[name].ints }
func (a *args) numbers(name string) []float64 { return a.values[name].numbers }

// errorf returns a usage error about the recipe, without the list of parameters.
func (a *args) errorf(format string, v ...any) error {
	return &UsageError{Recipe: a.recipe.Name, Problem: fmt.Sprintf(format, v...)}
}

// checkCount returns an error for an epoch that is far larger than the dataset: a typing error should not use up the
// machine's memory.
func (a *args) checkCount(name string, count, n int) error {
	if count > max(maxFree, 16*n) {
		return a.errorf("%s asks for %d samples an epoch of a dataset of %d: at most 16 times the dataset, or %d", name, count, n, maxFree)
	}
	return nil
}

// read checks spec against its recipe and reads every parameter.
func (r *Recipe) read(spec Spec) (*args, error) {
	given, err := r.collect(spec)
	if err != nil {
		return nil, err
	}
	a := &args{recipe: r, values: make(map[string]value, len(r.Params))}
	for _, p := range r.Params {
		text, ok := given[p.Name]
		delete(given, p.Name)
		if !ok {
			if p.Required {
				return nil, r.Missing(p)
			}
			if text = p.Default; text == "" {
				continue
			}
		}
		v, err := p.parse(text)
		if err != nil {
			return nil, r.usage("%s: %v", p.Name, err)
		}
		v.set = true
		a.values[p.Name] = v
	}
	if len(given) > 0 {
		names := make([]string, 0, len(given))
		for name := range given {
			names = append(names, name)
		}
		slices.Sort(names)
		e := r.usage("no parameter %s", strings.Join(names, ", "))
		if near := usage.Nearest(names[0], e.Params); near != "" {
			e.Problem += ": did you mean " + near + "?"
		}
		return nil, e
	}
	a.n, a.batch, a.world = a.int(paramSamples), a.int(paramBatch), max(1, a.int(paramWorld))
	return a, nil
}

// collect makes one map of Spec's fields and Params. A field at its zero value was not given.
func (r *Recipe) collect(spec Spec) (map[string]string, error) {
	given := make(map[string]string, len(spec.Params)+5)
	for name, text := range spec.Params {
		if flag, ok := flags[name]; ok {
			return nil, r.usage("%s has a flag of its own: %s", name, flag)
		}
		given[name] = text
	}
	if err := r.checkFields(spec); err != nil {
		return nil, err
	}
	if spec.Samples > 0 || r.has(paramSamples) {
		given[paramSamples] = strconv.Itoa(spec.Samples)
	}
	if spec.Seed != "" {
		given[paramSeed] = spec.Seed
	}
	if spec.BatchSize > 0 {
		given[paramBatch] = strconv.Itoa(spec.BatchSize)
	}
	if spec.World > 1 || spec.World == 1 && r.has(paramWorld) {
		given[paramWorld] = strconv.Itoa(spec.World)
	}
	if spec.DropLast {
		if !r.has(paramDropLast) {
			return nil, r.usage("it has no drop_last; for the DataLoader's around it give --param loader_drop_last=true")
		}
		given[paramDropLast] = "true"
	}
	return given, nil
}

// checkFields checks the numbers that are fields of Spec.
func (r *Recipe) checkFields(spec Spec) error {
	switch {
	case spec.Samples < 0 || spec.Samples > maxSamples:
		return r.usage("n is %d; a dataset has 0 to %d samples", spec.Samples, uint32(maxSamples))
	case spec.BatchSize < 0 || spec.BatchSize > maxRanks:
		return r.usage("batch_size is %d; it is 1 to %d, or 0 for none", spec.BatchSize, maxRanks)
	case spec.World < 0 || spec.World > maxRanks:
		return r.usage("world is %d; it is 1 to %d", spec.World, maxRanks)
	}
	return nil
}

func (r *Recipe) has(name string) bool {
	return slices.ContainsFunc(r.Params, func(p Param) bool { return p.Name == name })
}

// usage returns a usage error that lists the recipe's parameters.
func (r *Recipe) usage(format string, v ...any) *UsageError {
	e := &UsageError{Recipe: r.Name, Problem: fmt.Sprintf(format, v...)}
	for _, p := range r.Params {
		e.Params = append(e.Params, p.Name)
	}
	return e
}
