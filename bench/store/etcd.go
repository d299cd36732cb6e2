package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd is one member, as a process of its own.
type etcd struct {
	process *exec.Cmd
	client  *clientv3.Client
}

// startEtcd runs a member on a folder and returns when it has answered a read.
func startEtcd(ctx context.Context, binary, dir string) (*etcd, error) {
	client, peer := freeURL(), freeURL()
	log, err := os.OpenFile(filepath.Join(dir, "etcd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e := &etcd{process: exec.Command(binary, "--data-dir", filepath.Join(dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer, "--quota-backend-bytes", fmt.Sprint(8<<30))}
	e.process.Stdout, e.process.Stderr = log, log
	if err := e.process.Start(); err != nil {
		return nil, err
	}
	e.client, err = clientv3.New(clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop()})
	if err == nil {
		err = e.untilServing(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// untilServing asks until a read is answered.
func (e *etcd) untilServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, time.Second)
		_, err := e.client.Get(once, "/registry/pods/"+key(0))
		done()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (e *etcd) stop() error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	_ = e.process.Process.Signal(syscall.SIGTERM)
	_ = e.process.Wait() // it says how it was ended
	return err
}

// freeURL is one on which nobody listens.
func freeURL() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}
