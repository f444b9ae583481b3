package records

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// mostState is the maximum size of a description of a dataset in bytes.
const mostState = 64 << 20

// Shards implements [Format]. The pattern may be a folder that save_to_disk or load_dataset of the datasets package has written.
func (a *arrow) Shards(ctx context.Context, files Files, pattern string) ([]string, error) {
	names, err := files.Expand(pattern)
	if err != nil || len(names) != 1 || slices.Contains([]string{".arrow", ".arrows", ".feather", ".ipc"}, strings.ToLower(path.Ext(names[0]))) {
		return names, err
	}
	return arrowFolder(ctx, files, names[0], names)
}

// arrowFolder returns the shards in a folder of datasets, in the order of its rows; otherwise names.
func arrowFolder(ctx context.Context, files Files, folder string, names []string) ([]string, error) {
	var splits struct {
		Splits []string `json:"splits"`
	}
	if found, err := readState(ctx, files, path.Join(folder, "dataset_dict.json"), &splits); err != nil || found {
		if err == nil && len(splits.Splits) > 0 {
			err = fmt.Errorf("folder %s has the splits %s: choose one, such as %s", clip(folder), strings.Join(splits.Splits, ", "), clip("arrow:…/"+path.Join(path.Base(folder), splits.Splits[0])))
		}
		return nil, err
	}
	var state struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
		Indices []any `json:"_indices_data_files"`
	}
	found, err := readState(ctx, files, path.Join(folder, "state.json"), &state)
	switch {
	case err != nil:
		return nil, err
	case found && len(state.Indices) > 0:
		return nil, fmt.Errorf("folder %s has rows in another order than its files: save it again with datasets of version 2 or later", clip(folder))
	case found:
		names = nil
		for _, f := range state.Files {
			names = append(names, path.Join(folder, f.Name))
		}
		return names, nil
	}
	info := map[string]any{}
	if found, err = readState(ctx, files, path.Join(folder, "dataset_info.json"), &info); err != nil || !found {
		return names, err
	}
	all, err := files.Expand(path.Join(escapeGlob(folder), "*.arrow"))
	if err != nil {
		return nil, err
	}
	return cachedShards(folder, all)
}

// cachedShards returns the shards of a folder in the cache of load_dataset, which must have one split. Files of map and filter do not count.
func cachedShards(folder string, all []string) (names []string, err error) {
	splits := map[string]bool{}
	for _, name := range all {
		base := path.Base(name)
		if strings.HasPrefix(base, "cache-") || strings.HasPrefix(base, "tmp") || strings.HasPrefix(base, "indices-") {
			continue
		}
		names = append(names, name)
		splits[splitOf(base)] = true
	}
	if len(splits) > 1 {
		return nil, fmt.Errorf("folder %s has several splits: choose one by its files, such as %s", clip(folder), clip("arrow:…/"+path.Join(path.Base(folder), splitOf(path.Base(names[0]))+"*.arrow")))
	}
	return names, nil
}

// splitOf returns the part of a file name that all files of a split have: beans-train of beans-train-00000-of-00002.arrow.
func splitOf(base string) string {
	base = strings.TrimSuffix(base, ".arrow")
	parts := strings.Split(base, "-")
	if n := len(parts); n > 3 && parts[n-2] == "of" {
		return strings.Join(parts[:n-3], "-")
	}
	return base
}

// readState reads a description in JSON. found is false if there is no such file.
func readState(ctx context.Context, files Files, name string, to any) (found bool, err error) {
	r, size, err := files.Stream(ctx, name)
	if err != nil {
		return false, ctx.Err()
	}
	defer r.Close()
	if size > mostState {
		return false, fmt.Errorf("%s has %d bytes: it does not describe a dataset", clip(name), size)
	}
	b, err := io.ReadAll(io.LimitReader(r, mostState))
	if err != nil {
		return false, fmt.Errorf("%s: %w", clip(name), err)
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(to); err != nil {
		return false, fmt.Errorf("%s: %w", clip(name), err)
	}
	return true, nil
}

// escapeGlob returns a pattern that matches only this name.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "{", `\{`, "}", `\}`).Replace(name)
}
