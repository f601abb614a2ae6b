// Command control-plane is a whole Kubernetes control plane in one static binary: the first argument names the
// component to run (etcd, kube-apiserver, kube-controller-manager, kube-scheduler), the rest are that component's
// own flags. One binary means one link and shared pages when the components run side by side.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, on machines without a zone database

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// components maps the first argument to a program's main function, which returns its exit code.
// A further Kubernetes component is one more import and one more line here.
var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          kubernetes(apiserver.NewAPIServerCommand),
	"kube-controller-manager": kubernetes(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          kubernetes(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
}

// kubernetes delays the construction of a component's command until it is chosen: constructing one registers
// its flags, metrics and feature gates for the process.
func kubernetes(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func main() {
	if len(os.Args) > 1 {
		if run, known := components[os.Args[1]]; known {
			os.Args = os.Args[1:] // components parse os.Args[1:] themselves
			os.Exit(run())
		}
	}
	names := slices.Sorted(maps.Keys(components))
	fmt.Fprintf(os.Stderr, "usage: control-plane COMPONENT [FLAGS]\ncomponents: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
