package records

import (
	"errors"
	"strconv"
	"strings"
)

// parseLiteral parses a literal of Python as it occurs in a header of numpy: a text, an integer, True, False, a tuple or list (both as []any), or
// a dictionary with texts as keys.
func parseLiteral(text string) (any, error) {
	p := literal{rest: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.spaces(); p.rest != "" {
		return nil, errLiteral
	}
	return v, nil
}

var errLiteral = errors.New("it is not a literal of Python: the file is damaged")

// mostBrackets is the maximum depth of brackets.
const mostBrackets = 20

type literal struct{ rest string }

func (p *literal) spaces() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// next removes a character if it comes next.
func (p *literal) next(c byte) bool {
	p.spaces()
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *literal) value(depth int) (any, error) {
	p.spaces()
	if p.rest == "" || depth > mostBrackets {
		return nil, errLiteral
	}
	switch c := p.rest[0]; c {
	case '\'', '"':
		return p.text(c)
	case '(':
		return p.list('(', ')', depth)
	case '[':
		return p.list('[', ']', depth)
	case '{':
		return p.dictionary(depth)
	}
	word := p.rest
	if end := strings.IndexAny(word, ",)]}: \t\r\n"); end >= 0 {
		word = word[:end]
	}
	p.rest = p.rest[len(word):]
	switch word {
	case "True":
		return true, nil
	case "False":
		return false, nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(word, "L"), 10, 64) // Python 2 wrote 10L
	if err != nil {
		return nil, errLiteral
	}
	return n, nil
}

// text parses a text between quotes. Names of fields may have escapes; their value does not matter here.
func (p *literal) text(quote byte) (any, error) {
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case quote:
			s := p.rest[1:i]
			p.rest = p.rest[i+1:]
			return s, nil
		}
	}
	return nil, errLiteral
}

func (p *literal) list(open, closed byte, depth int) (any, error) {
	p.next(open)
	list := []any{}
	for !p.next(closed) {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if !p.next(',') {
			if !p.next(closed) {
				return nil, errLiteral
			}
			break
		}
	}
	return list, nil
}

func (p *literal) dictionary(depth int) (any, error) {
	p.next('{')
	all := map[string]any{}
	for !p.next('}') {
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok || !p.next(':') {
			return nil, errLiteral
		}
		if all[name], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		if !p.next(',') {
			if !p.next('}') {
				return nil, errLiteral
			}
			break
		}
	}
	return all, nil
}
