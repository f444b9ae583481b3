package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"lcache/internal/jsonbytes"
)

// A redactor replaces names by placeholders. It knows documents by their fields: a field says whether its text is a constant of lcache, a path, a host or a
// sentence. Text of a field that nobody has listed is replaced whole, so that a new field can't leak. Sentences are redacted word by word: see text.go.
//
// All documents are read twice. The first time the redactor only learns the names in their fields, so that a sentence in an earlier document can't
// mention a name before it is known.
type redactor struct {
	names    *names
	learning bool
	spaced   []string          // known names of several words
	ours     map[string]bool   // words that are no names, in addition to the vocabulary: of versions and flags
	known    map[string]string // the placeholders after the first reading
	raw      bool              // replace nothing; only credentials are removed
}

// class is what the text of a field is.
type class int

const (
	unknown  class = iota // replaced whole
	keep                  // a constant of lcache, a number as text, a digest
	drop                  // a credential
	sentence              // words, some of which may be names
	aPath
	aSource
	aHost
	aJob
	aDataset
	aKey
	aSample
	aClass
	aDevice
	anArgument
	aVariable
	anEnding // of files
	keysAreEndings
)

// A table has the class of each field with text in one kind of document, by its key. other is the class of the rest.
type table struct {
	fields map[string]class
	other  class
}

// The tables of the documents in a bundle. TestEveryField compares them with the types of the documents.
var (
	statusTable = table{fields: map[string]class{
		"version": keep, "io_engine": keep, "state": keep, "compress": keep, "recipe": keep, "seed": keep, "layout": keep, "bound_by": keep, "order_digest": keep,
		"requested_digest": keep, "method": keep, "lag": keep, "policy": keep, "substitute": keep, "time": keep, "kind": keep, "roster": keep, "fingerprint": keep, "dataset": aDataset,
		"dirs": aPath, "dir": aPath, "source": aSource, "name": aDataset, "layout_reason": sentence, "last_error": sentence, "text": sentence, "refused_reason": sentence,
		"id": aJob, "member": keep, "host": aHost, "addr": aHost, "listen": aHost, "label": aKey,
	}}
	helloTable = table{fields: map[string]class{
		"version": keep, "server": drop, "token": drop, "name": aDataset, "source": aSource, "fingerprint": keep, "recipe": keep, "seed": keep, "classes": aClass, "on_error": keep,
		"features": keep, "params": sentence, "identity": sentence, "ext": anEnding, "group": keep, "labels": aPath, "first_part": anEnding, "record_flags": sentence, "record_files": keep,
		"extensions": keysAreEndings, "s3_endpoint": aSource,
	}}
	machineTable = table{fields: map[string]class{
		"version": keep, "when": keep, "kernel": keep, "engine": keep, "reason": sentence, "cgroup": aPath, "shmem_enabled": keep, "dir": aPath, "seen": aPath, "file_system": keep,
		"nature": keep, "block_device": aDevice, "no_write": sentence, "no_device": sentence, "name": sentence, "state": keep, "found": sentence, "do": sentence, "unseen": sentence,
		"how": sentence, "verdict": keep, "why": sentence, "source": aSource,
	}}
	logTable = table{other: sentence, fields: map[string]class{
		"time": keep, "level": keep, "msg": sentence, "dir": aPath, "folder": aPath, "cache": aPath, "socket": aPath, "sample": aSample, "sample_name": aSample, "name": aJob, "shard": aSource, "host": aHost, "peer": aHost, "version": keep, "roster": keep,
	}}
	processTable = table{fields: map[string]class{
		"version": keep, "go_version": keep, "made": keep, "arguments": anArgument, "environment": anArgument, "left_out": aVariable, "missing": sentence, "socket": aPath,
	}}
)

// document returns a JSON document without its names, indented.
func (r *redactor) document(doc []byte, of table) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var out bytes.Buffer
	if err := r.value(d, &out, of.other, of); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the end of the document")
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, out.Bytes(), "", " "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return numbers.ReplaceAllFunc(indented.Bytes(), oneLine), nil
}

// numbers matches a list of numbers, which is printed on one line.
var numbers = regexp.MustCompile(`\[\n *-?[0-9][^\s,\]]*(,\n *-?[0-9][^\s,\]]*)*\n *\]`)

func oneLine(list []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(bytes.Join(bytes.Fields(list), []byte(" ")), []byte("[ "), []byte("[")), []byte(" ]"), []byte("]"))
}

// value copies one value. is is the class of its text.
func (r *redactor) value(d *json.Decoder, out *bytes.Buffer, is class, of table) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return r.object(d, out, is, of)
		}
		return r.array(d, out, is, of)
	case string:
		return writeString(out, r.string(t, is))
	case json.Number:
		out.WriteString(t.String())
	case bool:
		fmt.Fprint(out, t)
	case nil:
		out.WriteString("null")
	}
	return nil
}

func (r *redactor) object(d *json.Decoder, out *bytes.Buffer, is class, of table) error {
	out.WriteByte('{')
	for first := true; d.More(); first = false {
		token, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // of an object: else Token fails
		if !first {
			out.WriteByte(',')
		}
		inner, listed := of.fields[key]
		switch {
		case is != of.other: // the object belongs to a listed field
			inner = is
		case !listed:
			inner = of.other
		}
		if err := writeString(out, r.key(key, is, of.fields)); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := r.value(d, out, inner, of); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	_, err := d.Token()
	return err
}

func (r *redactor) array(d *json.Decoder, out *bytes.Buffer, is class, of table) error {
	out.WriteByte('[')
	for first := true; d.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		if err := r.value(d, out, is, of); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	_, err := d.Token()
	return err
}

// key returns a key of an object. Keys of lcache's documents are among its words; others are names, such as the endings of files.
func (r *redactor) key(key string, of class, in map[string]class) string {
	switch {
	case r.raw || r.learning:
		return key
	case of == keysAreEndings:
		return r.ending(key)
	case isWord(key) || isVariable(key) || in[key] != unknown:
		return key
	}
	return r.names.of("name", key)
}

// isVariable reports whether a key is a variable of lcache.
func isVariable(key string) bool {
	rest, ours := strings.CutPrefix(key, "LCACHE_")
	return ours && isWord("--"+strings.ReplaceAll(strings.ToLower(rest), "_", "-")) || vocabulary()[key]
}

func (r *redactor) ending(text string) string {
	if slices.Contains(extensions, strings.ToLower(text)) || slices.Contains(extensions, "."+strings.ToLower(text)) {
		return text
	}
	return r.names.of("ending", text)
}

// string returns the text of a field.
func (r *redactor) string(text string, is class) string {
	switch {
	case text == "":
		return ""
	case is == drop:
		return "(left out)"
	case r.raw:
		return withoutCredentials(text)
	}
	switch is {
	case keep:
		return text
	case sentence:
		return r.text(text)
	case aPath:
		return r.names.path(text)
	case aSource:
		return r.names.source(text)
	case aHost:
		return r.names.host(text)
	case aJob:
		return r.names.person("job", text)
	case aDataset:
		return r.names.person("dataset", text)
	case aKey:
		return r.names.person("key", text)
	case aSample:
		return r.names.path(text)
	case aClass:
		return r.names.person("class", text)
	case aDevice:
		if device.MatchString(text) {
			return text
		}
		return r.names.of("device", text)
	case anArgument:
		return r.argument(text)
	case aVariable: // LCACHE_SOCKET_<NAME> has the name of a dataset
		return r.key(text, unknown, nil)
	case anEnding, keysAreEndings:
		return r.ending(text)
	}
	return r.names.of("name", text)
}

// device matches the kernel's own names of disks.
var device = regexp.MustCompile(`^(nvme\d+n\d+|(sd|vd|xvd|hd)[a-z]{1,2}|(md|dm-|loop|zram)\d+)(p?\d+)?$`)

// argument returns an argument or the value of a variable. Flags and the words that they take stay, and so do numbers. A word of a sentence does not: it may be
// the name of a file.
func (r *redactor) argument(text string) string {
	flag, value, hasValue := strings.Cut(text, "=")
	switch {
	case r.ours[text] || isNumber(text):
		return text
	case strings.HasPrefix(text, "-") && (r.ours[flag] || isWord(flag)):
		if hasValue {
			return flag + "=" + r.argument(value)
		}
		return flag
	case hasPort.MatchString(text):
		return r.names.host(text)
	case strings.ContainsAny(text, "/:"):
		return r.names.source(text)
	}
	return r.names.of("name", text)
}

var hasPort = regexp.MustCompile(`^[^/]*:\d{1,5}$`)

func writeString(out *bytes.Buffer, text string) error {
	b, err := jsonbytes.Marshal(text)
	out.WriteString(plainer.Replace(string(b)))
	return err
}

// plainer undoes the escapes that only HTML needs.
var plainer = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// allow adds words that are no names.
func (r *redactor) allow(words ...string) {
	for _, word := range words {
		r.ours[word] = true
	}
}

// versionForm matches what lcache --version prints.
var versionForm = regexp.MustCompile(`^[\w.+-]{1,64} \((commit [0-9a-f]{1,40}(-dirty)?, [\d-]*, )?go[\w.+-]{1,32}( [A-Z]:[\w,]+)? \w{1,16}/\w{1,16}\)$`)

// wordsOfVersion returns the words of a version. A text that is no version has none, because a server may say anything.
func wordsOfVersion(version string) []string {
	if !versionForm.MatchString(version) {
		return nil
	}
	return strings.FieldsFunc(version, func(c rune) bool { return strings.ContainsRune(" (),", c) })
}

// learn reads the names in the fields of a document.
func (r *redactor) learn(doc []byte, of table) {
	r.learning = true
	_, _ = r.document(doc, of) // the second reading reports the error
	r.learning = false
	r.spaced = r.names.spacedNames()
}

// rest returns a replacer for names of documents that are still in a text: a last net below the redaction, for parts that are no documents, such as stacks. It replaces
// no short names and no words of lcache, which would hit other text.
func (r *redactor) rest() *strings.Replacer {
	var pairs []string
	known := make([]string, 0, len(r.known))
	for name := range r.known {
		if len(name) >= leastRest && !isNumber(name) && !isWord(name) && !r.ours[name] && !slices.Contains(standard, name) && !placeholderForm.MatchString(name) && !slices.Contains(extensions, path.Ext(name)) {
			known = append(known, name)
		}
	}
	slices.SortFunc(known, longestFirst)
	for _, name := range known {
		pairs = append(pairs, name, r.known[name])
	}
	return strings.NewReplacer(pairs...)
}

const leastRest = 5

// placeholderForm matches placeholders, and names that look like one.
var placeholderForm = regexp.MustCompile(`^[a-z]+-\d+$`)
