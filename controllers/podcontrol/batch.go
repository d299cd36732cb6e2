package podcontrol

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// requestsMax is how many requests of one pass are under way at once.
const requestsMax = 16

// SlowStart calls do for 0 to n-1, first one at a time, then in batches of twice the size while all
// succeed, so that what fails for all fails once and not n times. It returns how many calls were
// made, the errors of the batch that failed joined, and the context's error if that ended.
func SlowStart(ctx context.Context, n int, do func(i int) error) (made int, err error) {
	for batch := 1; made < n; batch *= 2 {
		if err := ctx.Err(); err != nil {
			return made, err
		}
		size := min(batch, n-made)
		if err := Together(size, func(i int) error { return do(made + i) }); err != nil {
			return made + size, err
		}
		made += size
	}
	return made, nil
}

// Together calls do for 0 to n-1, up to requestsMax at a time, and returns all errors joined.
func Together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(requestsMax)
	for i := range n {
		group.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	_ = group.Wait() // the calls return nil; their errors are in errs
	return errors.Join(errs...)
}
