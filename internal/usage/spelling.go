package usage

import "strings"

// shortest is the minimum number of letters for an abbreviation of a longer name.
const shortest = 3

// Nearest returns the name that is most like word, or "" if no name is alike. Two names are alike if they differ only
// in case and separators, if word is the end of a dotted name, or if word is the beginning of exactly one name. They
// are also alike if at most a third of word's letters are wrong, left out, added or swapped with a neighbour. Of
// equally near names, Nearest returns the first.
func Nearest(word string, names []string) string {
	plain := plainly(word)
	if plain == "" {
		return ""
	}
	var begins []string
	best, least := "", len(plain)/3+1
	for _, name := range names {
		p := plainly(name)
		if p == plain || strings.Contains(name, ".") && plainly(name[strings.LastIndexByte(name, '.'):]) == plain {
			return name
		}
		if len(plain) >= shortest && strings.HasPrefix(p, plain) {
			begins = append(begins, name)
		}
		if d := distance(plain, p, least); d < least {
			best, least = name, d
		}
	}
	if len(begins) == 1 {
		return begins[0]
	}
	return best
}

// Slip returns the name that differs from word by one typing error: a letter changed, left out, added, or swapped
// with its neighbour, or other separators. It returns "" if there is none, or if word has fewer than four letters,
// because such words are near to too many names.
func Slip(word string, names []string) string {
	plain := plainly(word)
	for _, name := range names {
		if p := plainly(name); p == plain || len(plain) > shortest && distance(plain, p, 2) == 1 {
			return name
		}
	}
	return ""
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

func plainly(name string) string { return separators.Replace(strings.ToLower(name)) }

// distance returns the number of letters to change, add, leave out, or swap with a neighbour, to turn a into b. It
// gives up at limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
