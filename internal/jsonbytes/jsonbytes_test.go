package jsonbytes

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// inner is embedded without a name in JSON.
type inner struct {
	Deep string `json:"deep"`
}

type document struct {
	Text   string            `json:"text"`
	List   []string          `json:"list"`
	Map    map[string]string `json:"map"`
	Count  map[string]int    `json:"count"`
	Any    any               `json:"any"`
	Link   *inner            `json:"link"`
	Links  []*inner          `json:"links"`
	Raw    json.RawMessage   `json:"raw"`
	Pair   [2]string         `json:"pair"`
	When   time.Time         `json:"when"`
	Empty  string            `json:"empty,omitempty"`
	Hidden *document         `json:"-"`
	inner
}

func documentOf(s string) document {
	raw, err := Marshal(s)
	if err != nil {
		panic(err)
	}
	d := document{Text: s, List: []string{"plain", s}, Map: map[string]string{s: s, "plain": "é"}, Count: map[string]int{s: 1}, Any: map[string]any{s: []any{s, 1.0}}, Link: &inner{s},
		Links: []*inner{{s}, nil}, Raw: raw, Pair: [2]string{s, ""}, When: time.Unix(1e9, 0).UTC(), inner: inner{s}}
	return d
}

// FuzzRoundTrip: any text is restored, wherever it is. The JSON is valid, and the value is not changed. UTF-8 text is
// written as by encoding/json.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "plain", "caf\xe9", "\xff\xfe", "é\xc3", "\xed\xb2\x80", "\xf0\x9f\x98", "\ufffd", "\ufffd\xff", `\udc80`, `\xe9`, mark, mark + "e9", mark + mark + "\xe9", "\x00<&>\u2028\"\\", "😀\xe9",
		"\U0010fffe\U000f0000", "a\xe9" + mark} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := documentOf(s)
		d.Hidden = &d // encoding/json does not look here
		b, err := Marshal(d)
		if err != nil || !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%q: %q, %v", s, b, err)
		}
		if plain, err := json.Marshal(d); utf8.ValidString(s) && (err != nil || string(plain) != string(b)) {
			t.Errorf("%q: got %s, want %s", s, b, plain)
		}
		want := documentOf(s)
		if d.Hidden = nil; !reflect.DeepEqual(d, want) {
			t.Errorf("%q: the document was changed: %+v", s, d)
		}
		var got document
		if err := Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v", s, got, err)
		}
		lines, err := MarshalIndent(d, "", "  ")
		var again document
		if err == nil {
			err = Unmarshal(lines, &again)
		}
		if err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%q, with line breaks: got %+v, %v", s, again, err)
		}
	})
}

// FuzzUnmarshal: this package accepts exactly the JSON that encoding/json accepts. Only lone surrogates from
// \udc80 to \udcff are read differently.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{`"\udc80"`, `"\uDCFF\ud800\udc80\ud800x\udc7f\udd00\\udc80"`, `"\ud83d\ude00\udce9"`, `{"\udce9":"\udbff\udfff","x":"` + mark + `e9"}`, `"\udce`, `\udc80`, `["\udc8g"]`, "\"\xe9\\udce9\"", `1`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got, plain any
		err, plainErr := Unmarshal([]byte(s), &got), json.Unmarshal([]byte(s), &plain)
		if (err == nil) != (plainErr == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", s, err, plainErr)
		}
		if !strings.Contains(strings.ToLower(s), `\udc`) && !reflect.DeepEqual(got, plain) {
			t.Errorf("%q: got %q, want %q", s, got, plain)
		}
		if text, is := got.(string); is && strings.ToValidUTF8(text, "") != strings.ReplaceAll(strings.ToValidUTF8(plain.(string), ""), "\ufffd", "") && !strings.Contains(plain.(string), "\ufffd") {
			t.Errorf("%q: got %q, want %q", s, text, plain)
		}
	})
}

// TestUnmarshal: texts of clients with other escapes, and targets of other kinds.
func TestUnmarshal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`"caf\udce9"`, "caf\xe9"},
		{`"caf\uDCE9"`, "caf\xe9"},
		{`"\udcc3\udca9"`, "é"}, // two bytes that together are UTF-8
		{`"\ud800\udc80"`, "\U00010080"},
		{`"\ud83d\ude00\udce9"`, "😀\xe9"},
		{`"\\udce9"`, `\udce9`},
		{`"\\\udce9"`, "\\\xe9"},
		{`"\udc7f\udd00\ud800"`, "\ufffd\ufffd\ufffd"},
		{`"\udbff\udfff\udce9"`, mark + "\xe9"},
		{`"` + mark + `e9\udce9"`, mark + "e9\xe9"},
		{`"\ufffd"`, "\ufffd"}, // written by earlier versions
	} {
		var got string
		if err := Unmarshal([]byte(c.text), &got); err != nil || got != c.want {
			t.Errorf("%s: got %q, want %q, %v", c.text, got, c.want, err)
		}
	}
	held := &inner{}
	to := struct{ Link *inner }{held}
	if err := Unmarshal([]byte(`{"Link":{"deep":"\udce9"}}`), &to); err != nil || held.Deep != "\xe9" || to.Link != held {
		t.Errorf("through a pointer: %q, %v", held.Deep, err)
	}
	if err := Unmarshal([]byte(`"\udce9"`), "no pointer"); err == nil {
		t.Error("unmarshalled into a value that can't be set")
	}
}

// TestMarshal checks the form that docs/protocol.md specifies.
func TestMarshal(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{"caf\xe9", `"caf\udce9"`},
		{[]string{"\xff", "\ufffd"}, "[\"\\udcff\",\"\ufffd\"]"},
		{map[string]int{"\xe8": 1, "\xe9": 2}, `{"\udce8":1,"\udce9":2}`},
		{&inner{"\xe9"}, `{"deep":"\udce9"}`},
		{nil, "null"},
		{struct{ A, B any }{"\xe9", nil}, `{"A":"\udce9","B":null}`},
		{json.RawMessage(`"\ufffd ` + mark + `e9"`), `"\ufffd ` + mark + `e9"`},
	} {
		if b, err := Marshal(c.value); err != nil || string(b) != c.want {
			t.Errorf("%q: got %s, want %s, %v", c.value, b, c.want, err)
		}
	}
	if _, err := Marshal(struct{ A, B any }{"\xe9", func() {}}); err == nil {
		t.Error("a function has JSON")
	}
}

// TestPython: Python's json reads and writes these texts as the results of os.fsdecode.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: its json can't be compared")
	}
	names := []string{"plain", "caf\xe9", "é\xc3", "\xed\xb2\x80", "\xf0\x9f\x98", "😀\xff\ufffd", `\udce9`, mark + "e9\xe9"}
	said, err := Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-X", "utf8", "-c", `
import json, os, sys
names = json.load(sys.stdin)
assert names == [os.fsdecode(os.fsencode(name)) for name in names]
print(json.dumps([os.fsencode(name).hex() for name in names]))
print(json.dumps(names))`)
	cmd.Stdin = strings.NewReader(string(said))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	hexes, back, _ := strings.Cut(string(out), "\n")
	var want []string
	for _, name := range names {
		want = append(want, fmt.Sprintf("%x", name))
	}
	if text, _ := Marshal(want); strings.ReplaceAll(hexes, ", ", ",") != string(text) {
		t.Errorf("Python has the bytes %s, want %s", hexes, text)
	}
	var got []string
	if err := Unmarshal([]byte(back), &got); err != nil || !reflect.DeepEqual(got, names) {
		t.Errorf("Python writes %s, which is %q, %v; want %q", back, got, err, names)
	}
}
