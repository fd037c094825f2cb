// Read-process-write over franz-go: copies a topic to another exactly once, until it is told to end (SIGTERM) or killed.
//
//	copier GROUP INPUT OUTPUT TRANSACTIONAL-ID PARTITIONS
//
// Does and says what copier_confluent.py does and says.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func setting(name, standard string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return standard
}

func session(words []string) (*kgo.GroupTransactSession, error) {
	timeout, err := strconv.Atoi(setting("COPIER_TRANSACTION_MS", "5000"))
	if err != nil {
		return nil, err
	}
	return kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP")),
		kgo.ConsumerGroup(words[0]),
		kgo.ConsumeTopics(words[1]),
		kgo.DefaultProduceTopic(words[2]),
		kgo.TransactionalID(words[3]),
		kgo.TransactionTimeout(time.Duration(timeout)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { fmt.Println("assigned") }),
	)
}

// Whether the transaction is committed.
func copied(within *kgo.GroupTransactSession, records []*kgo.Record, partitions int32) (bool, error) {
	if err := within.Begin(); err != nil {
		return false, err
	}
	failed := kgo.AbortingFirstErrPromise(within.Client())
	for _, record := range records {
		next := (record.Partition + 1) % partitions
		within.Produce(context.Background(), &kgo.Record{Value: record.Value, Partition: next}, failed.Promise())
	}
	try := kgo.TransactionEndTry(failed.Err() == nil)
	if rand.Intn(10) == 0 {
		try = kgo.TryAbort
	}
	return within.End(context.Background(), try)
}

func run(words []string) error {
	partitions, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	within, err := session(words)
	if err != nil {
		return err
	}
	defer within.Close()
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for told.Err() == nil {
		records := within.PollRecords(told, 1+rand.Intn(80)).Records()
		if len(records) == 0 {
			continue
		}
		committed, err := copied(within, records, int32(partitions))
		if err != nil {
			return err
		}
		if committed {
			fmt.Println("copied", len(records))
		} else {
			fmt.Println("aborted")
		}
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("ended", err)
		os.Exit(3)
	}
}
