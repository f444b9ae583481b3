package shuffle

import (
	"maps"
	"slices"
	"strings"

	"lcache/internal/usage"
)

// Recipe describes one way in which a framework makes the order of an epoch. The command line's list, the errors and
// docs/recipes.md all use these descriptions.
type Recipe struct {
	Name   string
	About  string // one sentence
	Epoch  string // meaning of the epoch's number
	Params []Param

	// WorldInOrder means that the global order itself, not only its split, depends on the world size.
	WorldInOrder bool

	build func(*args) (*plan, error) // nil: a stream of numbers instead of an order, see RandomInt64
}

// The two meanings of an epoch.
const (
	epochIsSet     = "the number given to set_epoch; any epoch can be asked for at no extra cost"
	epochIsCounted = "iterations of one live object, from 0; every earlier one ran to its end"
)

// Recipes lists all recipes, by name.
func Recipes() []Recipe {
	all := slices.Concat(samplerRecipes(), legacyRecipes(), subsetRecipes(), loaderRecipes(), distributedRecipes(), torchdataRecipes(),
		int64Recipes(), accelerateRecipes(), timmRecipes(), numpyRecipes(), pythonRecipes(), grainRecipes(), jaxRecipes())
	slices.SortFunc(all, func(a, b Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Lookup finds a recipe by name. Its error, a *UsageError, lists the existing names, or says why the requested order
// can't be replayed.
func Lookup(name string) (*Recipe, error) {
	all := Recipes()
	names := make([]string, len(all))
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
		names[i] = all[i].Name
	}
	if why, ok := refused[name]; ok {
		return nil, &UsageError{Recipe: name, Problem: why + pushInstead}
	}
	if name == "" {
		return nil, &UsageError{Problem: "no recipe is named; there are " + strings.Join(names, ", ")}
	}
	if near := usage.Nearest(name, names); near != "" {
		return nil, &UsageError{Problem: "unknown recipe " + clip(name) + ": did you mean " + near + "? The recipes are " + strings.Join(names, ", ")}
	}
	return nil, &UsageError{Problem: "unknown recipe " + clip(name) + "; the recipes are " + strings.Join(names, ", ")}
}

// Missing returns the error for a Spec that lacks a required parameter.
func (r *Recipe) Missing(p Param) *UsageError {
	return r.usage("%s is missing (%s: %s)", p.Name, p.Flag(), p.Meaning)
}

// Unpredictable lists names of orders that cannot be replayed, each with the reason.
func Unpredictable() map[string]string { return maps.Clone(refused) }

// pushInstead is the advice for an order that can't be replayed.
const pushInstead = ": it can't be replayed; push each epoch's indices as they are drawn, with job.push_order(epoch, rank, indices)"

// refused are shuffles that users may request by name, with the reason why they are not recipes.
var refused = map[string]string{
	"torch.multinomial":       "its draws go through log() of the machine's vector library",
	"torch.cuda":              "a CUDA generator runs another algorithm (Philox) on the GPU",
	"tf.data.shuffle":         "its seeds depend on the order in which operations were made",
	"mosaicml.streaming":      "it has shuffles and a format of its own",
	"hf.group_by_length":      "it sorts by the lengths of the samples, which only the job knows",
	"torch.iterable_dataset":  "an iterable dataset has no indices to predict",
	"torch.dataloader_random": "a DataLoader with in_order=False yields batches as workers finish them",
}

// Order describes whether the global order depends on the world size; "" for a recipe without an order.
func (r *Recipe) Order() string {
	switch {
	case !r.has(paramWorld):
		return ""
	case r.WorldInOrder:
		return "depends on the world size"
	}
	return "the same for every world size"
}

// Numbers reports whether the recipe makes numbers instead of an order: see RandomInt64.
func (r *Recipe) Numbers() bool { return r.build == nil }

// Given describes in a word what happens if the parameter is left out.
func (p Param) Given() string {
	switch {
	case p.Required:
		return "required"
	case p.Default != "":
		return "default " + p.Default
	}
	return "optional"
}

// Help returns the parameter's meaning and its allowed values.
func (p Param) Help() string {
	if len(p.Values) > 0 {
		return strings.Join(p.Values, " | ") + ": " + p.Meaning
	}
	return p.Meaning
}
