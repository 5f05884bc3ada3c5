// SPDX-License-Identifier: Apache-2.0

package postgres

import "context"

// MakePartitions makes the partitions that are missing ahead of the head, and answers how many it made.
func (s *Store) MakePartitions(ctx context.Context, size int64, ahead int) (int, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	made, err := MakePartitions(ctx, s.pool, s.options.Schema, size, ahead)
	if made > 0 && err == nil {
		// the run that finds nothing to make lets the producers know of what the others made
		_, err = MakePartitions(ctx, s.pool, s.options.Schema, size, ahead)
	}
	return made, err
}
