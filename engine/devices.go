package engine

import (
	"fmt"
	"strings"

	"lcache/logfile"
)

// DeviceStatus is the part of CacheStatus about one directory. State is "normal", "read-only" (it takes no new blocks, what lies there
// is read) or "aside" (what lies there comes from the source); the other two end by themselves when the device is well again.
type DeviceStatus struct {
	Dir       string `json:"dir"`
	State     string `json:"state"`
	Errors    int64  `json:"errors"`
	Asides    int64  `json:"asides"` // how often it was put aside
	LastError string `json:"last_error"`
	Blocks    int64  `json:"blocks_written"`
}

func (e *Engine) devices() (list []DeviceStatus) {
	for _, d := range e.cache.Store.Devices() {
		list = append(list, DeviceStatus{Dir: d.Dir, State: d.State, Errors: int64(d.Errors), Asides: int64(d.Asides), LastError: d.LastError, Blocks: int64(d.Blocks)})
	}
	return list
}

// cacheState sums the devices up in a few words, and what else may be wrong with the cache.
func cacheState(devices []DeviceStatus, other error) string {
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
