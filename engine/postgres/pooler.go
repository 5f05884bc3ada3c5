// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// looks is how often the processes behind two connections are compared. A pooler gives out the connection that
// came back last, so one look is enough when nobody else uses it.
const looks = 10

// Pooled reports whether a URL leads through a pooler that hands the connections to the server out by
// transaction. A session of the server is then nobody's own: LISTEN, SET ROLE and advisory locks get lost.
//
// A pooler gives its clients process numbers of its own making, so a number that is the server's ends the
// question. Else two connections tell: each must stay with a process of its own. An answer is waited for a little
// longer than limit, which is that of a statement; 0 is none.
func Pooled(ctx context.Context, url string, limit time.Duration) (bool, error) {
	first, err := connectToLook(ctx, url, limit)
	if err != nil {
		return false, err
	}
	defer closeSoon(ctx, first)
	mine, err := backend(ctx, first)
	if err != nil || mine == first.PgConn().PID() {
		return false, err
	}
	second, err := connectToLook(ctx, url, limit)
	if err != nil {
		return false, err
	}
	defer closeSoon(ctx, second)
	for range looks {
		other, err := backend(ctx, second)
		if err != nil {
			return false, err
		}
		again, err := backend(ctx, first)
		if err != nil || other == mine || again != mine {
			return err == nil, err
		}
	}
	return false, nil
}

// backend is the process of the server that answers, asked in the one way that every pooler lets through.
func backend(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var pid uint32
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err != nil {
		return 0, fmt.Errorf("ask which process of the server answers: %w", err)
	}
	return pid, nil
}

func closeSoon(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	_ = conn.Close(ctx) // nothing is kept on it
}
