package durabletest

import "lcache/internal/disk/blockio"

// Watch makes the Disk receive the transfers and syncs of an engine's files, which no Trace receives.
func (d *Disk) Watch(io *blockio.IO) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if !op.Write {
			return blockio.Fault{}
		}
		var succeeded func()
		if op.Buf == nil {
			succeeded = d.StartSync(op.File.Name())
		} else {
			succeeded = d.StartWrite(op.File.Name(), op.Offset, op.Buf)
		}
		done := op.Done
		op.Done = func(op *blockio.Op, err error) {
			if err == nil {
				succeeded()
			}
			done(op, err)
		}
		return blockio.Fault{}
	})
}
