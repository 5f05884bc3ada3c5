// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/finalize"
)

// FinalizeRestoreThrough is FinalizeRestore with something between the steps and the database.
func FinalizeRestoreThrough(ctx context.Context, cfg *config.Config, o FinalizeOptions, wrap func(finalize.Tx) finalize.Tx) (FinalizeReport, error) {
	return finalizeRestore(ctx, cfg, o, wrap)
}
