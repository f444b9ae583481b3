package main

import (
	"fmt"
	"io"

	"lcache/cmd/lcache/internal/launch"
)

// nearBest is the share of the best rate above which a faster data path makes no noticeable difference. lcache.torch.headspace has the same.
const nearBest = 0.95

// writeHeadspace prints the possible gain of a faster data path for each loader of the command.
func writeHeadspace(w io.Writer, loaders []launch.Headspace) {
	if len(loaders) == 0 {
		fmt.Fprintln(w, "headspace  not measured: COMMAND used no DataLoader of lcache.torch, and none through lcache.torch.watch")
	}
	for _, h := range loaders {
		name := ""
		if len(loaders) > 1 && h.Job != "" {
			name = "job " + h.Job + ": "
		}
		fmt.Fprintf(w, "headspace  %s%s\n", name, headspaceText(h))
	}
}

func headspaceText(h launch.Headspace) string {
	switch {
	case h.Best == 0 && h.Real == 0:
		return "not measured: an epoch of this loader has too few batches"
	case h.Best == 0:
		return fmt.Sprintf("lcache gives %s batches/s; the best is not known, because no epoch came beyond its half", batchRate(h.Real))
	case h.Real == 0:
		return fmt.Sprintf("your loop takes %s batches/s at best; epochs are too short for lcache's rate", batchRate(h.Best))
	}
	text := fmt.Sprintf("your loop takes %s batches/s at best; lcache gives %s", batchRate(h.Best), batchRate(h.Real))
	switch {
	case h.Real >= nearBest*h.Best:
		return text + ": change nothing"
	case h.First:
		return text + " in the first epoch, which may wait for the source: train a second one to know more"
	}
	return fmt.Sprintf("%s: a faster data path could make it %.1f times as fast", text, h.Best/h.Real)
}

func batchRate(perSecond float64) string {
	if perSecond >= 100 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.3g", perSecond)
}
