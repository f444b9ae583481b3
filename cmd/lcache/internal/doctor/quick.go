package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of Quick, which stands in the way of a training's start. What a slow device has in flight at a step's end takes time, too.
const (
	quickFile = 256 << 20                      // bytes of the file, and of one stream of one step
	quickSize = 512 << 10                      // of a transfer in order
	quickFill = 400 * time.Millisecond         // for the file
	quickStep = 300 * time.Millisecond * 8 / 7 // 7/8 of it count: whole slices of the kernel's throttling, which lets the work of 100 ms through at once
)

var errBusy = errors.New("the device, or this machine, was too busy to be measured in a short time")

// QuickOptions of Quick.
type QuickOptions struct {
	Dir    string
	Engine string // as in blockio.Options
	Logger *slog.Logger
}

// Quick measures the facts of a device that choose a layout: in under 3 s, with O_DIRECT, on a file of at most 256 MiB. Each of its six steps moves at most the
// size of the file. Quick does not measure the size of an operation, and assumes 256 KiB. It refuses places where a cache cannot be.
func Quick(ctx context.Context, o QuickOptions) (dev *Device, err error) {
	p := lookAtPlace(os.DirFS("/"), o.Dir)
	if wrong := p.wrong(); wrong != "" {
		return nil, errors.New(wrong)
	}
	size, err := fileSize(DiskOptions{Dir: p.Seen})
	if err != nil {
		return nil, err
	}
	d, err := OpenDisk(ctx, DiskOptions{Dir: p.Seen, Bytes: min(size, quickFile), Engine: o.Engine, Logger: o.Logger, fill: quickFill})
	if err != nil {
		return nil, err
	}
	d.most = quickFile
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.quick(ctx, quickStep)
}

func (d *Disk) quick(ctx context.Context, length time.Duration) (*Device, error) {
	began := time.Now()
	dev := &Device{When: began.Round(time.Second), FileBytes: d.size,
		How: fmt.Sprintf("a file of %d MiB, O_DIRECT: 512 KiB in order at depth 12; 4 KiB at random at depth 32; %v each", d.size>>20, length.Round(time.Millisecond))}
	dev.Engine, dev.Direct = d.Engine()
	for _, s := range d.basics(dev, Stream{Size: quickSize, Depth: 12}, length, length) {
		r, err := d.Run(ctx, s.length, s.streams...)
		if err != nil {
			return nil, err
		}
		s.note(r)
	}
	if min(dev.Read, dev.Write, dev.BothRead, dev.BothWrite, dev.IOPS, dev.WriteIOPS, dev.BothIOPS) <= 0 {
		return nil, errBusy
	}
	dev.atLeastBoth()
	dev.derive(nil)
	dev.OpBytes, dev.OpMeasured = assumedOp, false
	dev.Seconds = time.Since(began).Seconds()
	return dev, nil
}

// atLeastBoth raises the rate of reads or writes alone to their rate in the mixed step, if that is higher. Something disturbed the step alone then, such as the
// write-back of files that were copied to the device just before.
func (dev *Device) atLeastBoth() {
	dev.Read, dev.Write = max(dev.Read, dev.BothRead), max(dev.Write, dev.BothWrite)
}

// Identity tells one file system from others, over restarts of the machine.
type Identity struct {
	FileSystem string `json:"file_system"` // the number that the kernel gives it
	Block      string `json:"block_device,omitempty"`
	Bytes      uint64 `json:"size_bytes"`
}

// Identify returns the identity of the file system that a directory is on, or will be.
func Identify(dir string) (Identity, error) {
	seen := nearest(dir)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Statfs(seen, &fs), unix.Stat(seen, &st)); err != nil {
		return Identity{}, fmt.Errorf("look at %s: %w", seen, err)
	}
	id := Identity{FileSystem: fmt.Sprintf("%08x%08x", uint32(fs.Fsid.Val[1]), uint32(fs.Fsid.Val[0])), Bytes: fs.Blocks * uint64(fs.Bsize)}
	id.Block, _ = blockDevice(os.DirFS("/"), st.Dev)
	return id, nil
}
