package planner

import (
	"strconv"
	"strings"

	"lcache/internal/usage"
)

// Endurance is what drives are meant for: drive writes a day, or bytes in all over five years. One of both is 0.
type Endurance struct{ Daily, Total float64 }

// ParseEndurance reads "3DWPD", drive writes a day, or "1400TBW", terabytes of all drives together, which count over five years.
func ParseEndurance(text string) (e Endurance, err error) {
	digits, daily := strings.CutSuffix(text, "DWPD")
	if n, err := strconv.ParseFloat(digits, 64); daily && err == nil && n > 0 && n < 1e6 {
		return Endurance{Daily: n}, nil
	}
	digits, total := strings.CutSuffix(text, "TBW")
	n, err := strconv.ParseFloat(digits, 64)
	if !total || err != nil || !(n > 0 && n < 1e12) {
		return e, usage.Errorf("endurance %q: write 3DWPD, drive writes a day, or 1400TBW, which counts over five years", text)
	}
	return Endurance{Total: n * 1e12}, nil
}

// PerDay is how many bytes a day drives of a size may be written.
func (e Endurance) PerDay(drives float64) float64 { return e.Daily*drives + e.Total/(5*365) }
