package bundle

import (
	_ "embed"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Sentences, such as events, errors and log messages, may name anything: a sample, a host in the error of a network, a bucket. Patterns of what a name looks
// like would miss the ones that look like words, and known names alone would miss the names that only the source knows. So the rule is the other way round:
// a word of a sentence stays only if lcache itself writes it, or if it is a number. All other words are replaced. The words of lcache are those of the string
// literals of its source code, in words.txt.

//go:embed words.txt
var wordsFile string

// vocabulary are the words that lcache writes.
var vocabulary = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(wordsFile) {
		words[word] = true
	}
	return words
})

var (
	userInAddress  = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^/\s"]*@`)
	queryInAddress = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s"?#]*)[?#][^\s"]*`)
)

// withoutCredentials removes users, passwords and queries from the addresses in a text. A query may be a signature.
func withoutCredentials(text string) string {
	return queryInAddress.ReplaceAllString(userInAddress.ReplaceAllString(text, "$1"), "$1")
}

// isWord reports whether lcache writes a word itself, at the beginning of a sentence or inside one.
func isWord(word string) bool {
	word = strings.TrimSuffix(word, "'s")
	if vocabulary()[word] {
		return true
	}
	first, size := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(first) && vocabulary()[string(unicode.ToLower(first))+word[size:]]
}

// number matches numbers with their units, times, versions and codes of errors.
var number = regexp.MustCompile(`^([+-]?[\d,]*\.?\d+(/[\d,]*\.?\d+)?(%|x|×|[kKMGT]?i?B|ms|µs|ns|s|m|h|d)?(/s)?` +
	`|(\d+(\.\d+)?(h|m|s|ms|µs|ns))+` +
	`|0x[0-9a-f]+` +
	`|v?\d+\.\d+\.\d+` +
	`|\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?` +
	`|\d+:\d\d(:\d\d)?` +
	`|LC\d{3})$`)

func isNumber(word string) bool { return number.MatchString(word) }

// text replaces the names in a sentence.
func (r *redactor) text(text string) string {
	if r.learning {
		return text
	}
	if r.raw {
		return withoutCredentials(text)
	}
	var out strings.Builder
	for text != "" {
		plain, quote := cutQuote(text)
		text = text[len(plain)+len(quote):]
		out.WriteString(r.plain(plain))
		if quote != "" {
			out.WriteString(r.quoted(quote))
		}
	}
	return out.String()
}

// endingBefore matches the endings of a file that stay, before the rest of a sentence.
var endingBefore = regexp.MustCompile(`^(\.(` + strings.ReplaceAll(strings.Join(extensions, "|"), ".", "") + `)\b)*`)

// plain replaces the names in a text without quotes.
func (r *redactor) plain(text string) string {
	for _, name := range r.spaced { // names of several words, which the words below would tear apart
		if before, after, found := strings.Cut(text, name); found {
			ending := endingBefore.FindString(after)
			return r.plain(before) + r.names.of("name", name) + ending + r.plain(after[len(ending):])
		}
	}
	var out strings.Builder
	for text != "" {
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			return out.String() + r.word(text)
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		out.WriteString(r.word(text[:end]) + text[end:end+size])
		text = text[end+size:]
	}
	return out.String()
}

// cutQuote cuts a text after its first text in quotes. Without one, all is plain.
func cutQuote(text string) (plain, quote string) {
	for i := range len(text) {
		if quote, ok := quotedPrefix(text[i:]); ok {
			return text[:i], quote
		}
	}
	return text, ""
}

// quotedPrefix returns the text in quotes at the beginning of a text, with its quotes.
func quotedPrefix(text string) (string, bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i+1], true
		}
	}
	return "", false
}

// quoted replaces a text in quotes, which is mostly one name. The quotes and escapes are not part of the name.
func (r *redactor) quoted(quote string) string {
	name, err := strconv.Unquote(quote)
	if err != nil {
		name = quote[1 : len(quote)-1]
	}
	if r.isOurs(name) {
		return quote
	}
	switch {
	case strings.Contains(name, "/"):
		name = r.names.source(name)
	case slices.Contains(extensions, strings.ToLower(path.Ext(name))):
		name = r.names.path(name)
	default:
		name = r.names.of("name", name)
	}
	return `"` + name + `"`
}

// isOurs reports whether each word of a text is lcache's, and the whole is no name that is known.
func (r *redactor) isOurs(text string) bool {
	if r.names.placeholders[text] != "" {
		return false
	}
	for word := range strings.FieldsSeq(text) {
		if !r.stays(word) {
			return false
		}
	}
	return true
}

// stays reports whether a word is no name.
func (r *redactor) stays(word string) bool {
	return r.ours[word] || !r.names.inText[word] && (isNumber(word) || isWord(word))
}

// Marks around a word that are not part of it.
const (
	marksBefore = "([{<'`“‘→·…|"
	marksAfter  = ")]}>'`”’,.;:!?…|"
	marksInside = ",;:()[]{}<>|=·→+*&'`“”\\"
)

// word replaces what stands between two spaces.
func (r *redactor) word(word string) string {
	if word == "" || r.stays(word) {
		return word
	}
	core := strings.TrimLeft(word, marksBefore)
	before := word[:len(word)-len(core)]
	after := core
	core = strings.TrimRight(core, marksAfter)
	after = after[len(core):]
	return before + r.core(core) + after
}

func (r *redactor) core(core string) string {
	key, value, isPair := strings.Cut(core, "=")
	switch {
	case core == "" || r.stays(core) || !strings.ContainsFunc(core, isWordRune):
		return core
	case isPair && r.stays(key):
		return key + "=" + r.word(value)
	case strings.Contains(core, "/"):
		return r.names.source(core)
	case r.names.placeholders[core] != "":
		return r.names.of("name", core)
	}
	if host, _, found := strings.Cut(core, ":"); found && strings.Count(core, ":") == 1 && isNumber(core[len(host)+1:]) && !r.stays(host) {
		return r.names.host(core) // host:port
	}
	if i := strings.IndexAny(core, marksInside); i >= 0 {
		_, size := utf8.DecodeRuneInString(core[i:])
		return r.core(core[:i]) + core[i:i+size] + r.core(core[i+size:])
	}
	return r.names.of("name", core)
}

func isWordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// spacedNames returns the known names of several words, the longest first.
func (n *names) spacedNames() (spaced []string) {
	for name := range n.placeholders {
		if strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || c == '"' }) {
			spaced = append(spaced, name)
		}
	}
	slices.SortFunc(spaced, longestFirst)
	return spaced
}

func longestFirst(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}
