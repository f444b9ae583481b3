package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"lcache/shuffle"
)

// writeRecipes prints all recipes with their parameters.
func writeRecipes(w io.Writer, recipes []shuffle.Recipe, format string) error {
	if format == "json" {
		return writeRecipesJSON(w, recipes)
	}
	if format != "text" {
		return usagef("--list is printed with --format text or json")
	}
	out := bufio.NewWriter(w)
	for _, r := range recipes {
		fmt.Fprintf(out, "%s\n  %s\n  epoch: %s\n", r.Name, r.About, r.Epoch)
		if order := r.Order(); order != "" {
			fmt.Fprintf(out, "  global order: %s\n", order)
		}
		table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		for _, p := range r.Params {
			fmt.Fprintf(table, "    %s\t%s\t%s\t%s\n", p.Flag(), p.Type, p.Given(), p.Help())
		}
		if err := table.Flush(); err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "These shuffles cannot be replayed; push each epoch's indices with job.push_order instead:")
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	unpredictable := shuffle.Unpredictable()
	for _, name := range slices.Sorted(maps.Keys(unpredictable)) {
		fmt.Fprintf(table, "  %s\t%s\n", name, unpredictable[name])
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return out.Flush()
}

func writeRecipesJSON(w io.Writer, recipes []shuffle.Recipe) error {
	type param struct {
		Name     string   `json:"name"`
		Flag     string   `json:"flag"`
		Type     string   `json:"type"`
		Required bool     `json:"required"`
		Default  *string  `json:"default"`
		Values   []string `json:"values,omitempty"`
		Meaning  string   `json:"meaning"`
	}
	type recipe struct {
		Name         string  `json:"name"`
		About        string  `json:"about"`
		Epoch        string  `json:"epoch"`
		WorldInOrder bool    `json:"world_in_order"`
		Params       []param `json:"params"`
	}
	list := struct {
		Schema        int               `json:"schema"`
		Recipes       []recipe          `json:"recipes"`
		Unpredictable map[string]string `json:"unpredictable"`
	}{Schema: 1, Unpredictable: shuffle.Unpredictable()}
	for _, r := range recipes {
		entry := recipe{Name: r.Name, About: r.About, Epoch: r.Epoch, WorldInOrder: r.WorldInOrder}
		for _, p := range r.Params {
			q := param{Name: p.Name, Flag: strings.TrimSuffix(p.Flag(), "="), Type: string(p.Type), Required: p.Required, Values: p.Values, Meaning: p.Meaning}
			if p.Default != "" {
				q.Default = &p.Default
			}
			entry.Params = append(entry.Params, q)
		}
		list.Recipes = append(list.Recipes, entry)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(list)
}
