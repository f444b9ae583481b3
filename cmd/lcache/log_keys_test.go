package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLogKeys: the keys of log messages are those that docs/operating.md lists, so that programs can rely on them.
func TestLogKeys(t *testing.T) {
	used := map[string]string{"time": "package slog", "level": "package slog", "msg": "package slog"}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "../..":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range keysOf(call) {
				used[key] = path
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Log messages")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_ ]+)`").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if !listed[key] {
			t.Errorf("%s logs the key %q: list it in docs/operating.md, under Log messages", used[key], key)
		}
	}
	if len(used) < 30 {
		t.Errorf("only %d keys were found", len(used))
	}
}

// keysOf returns the keys in a call of a logger's Debug, Info, Warn or Error, or of slog.String.
func keysOf(call *ast.CallExpr) (keys []string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	of := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	first := -1
	switch {
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) && slices.Contains([]string{"Logger", "logger", "log"}, of):
		first = 1
	case of == "slog" && method.Sel.Name == "String":
		first = 0
	default:
		return nil
	}
	for i := first; i < len(call.Args); i += 2 {
		if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if key, err := strconv.Unquote(lit.Value); err == nil {
				if key == "err" { // newLogger gives it another name
					key = "error"
				}
				keys = append(keys, key)
			}
		}
	}
	return keys
}
