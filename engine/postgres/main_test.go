// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"example.com/bothy/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }
