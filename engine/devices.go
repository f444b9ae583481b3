package engine

import (
	"fmt"
	"strings"

	"lcache/internal/serve/status"
	"lcache/logfile"
)

func (e *Engine) devices() (list []status.Device) {
	for _, d := range e.cache.Store.Devices() {
		list = append(list, status.Device{Dir: d.Dir, State: d.State, Errors: int64(d.Errors), Asides: int64(d.Asides), LastError: d.LastError, Blocks: int64(d.Blocks)})
	}
	return list
}

// cacheState sums the devices up in a few words, and what else may be wrong with the cache.
func cacheState(devices []status.Device, other error) string {
	var trouble []string
	aside := 0
	for _, d := range devices {
		if d.State == logfile.DeviceNormal {
			continue
		}
		if d.State == logfile.DeviceAside {
			aside++
		}
		trouble = append(trouble, fmt.Sprintf("%s is %s", d.Dir, d.State))
	}
	switch {
	case aside > 0 && aside == len(devices):
		return "aside"
	case len(trouble) > 0:
		return "degraded: " + strings.Join(trouble, ", ")
	case other != nil:
		return "degraded: " + other.Error()
	}
	return "normal"
}
