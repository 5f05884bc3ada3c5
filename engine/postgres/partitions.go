// SPDX-License-Identifier: Apache-2.0

package postgres

import "context"

// MakePartitions makes the partitions that are missing ahead of the head, and answers how many it made.
func (s *Store) MakePartitions(ctx context.Context, size int64, ahead int) (int, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return MakePartitions(ctx, s.pool, s.options.Schema, size, ahead)
}
