// Command podreplica is the PodReplica operator on controller-runtime: the native peer of the benchmark.
//
// -pods=typed (default) is what the Kubebuilder book teaches: full pods in the cache, found by an owner index.
// -pods=metadata keeps pod metadata only, and drops managed fields from the cache. -ryw turns on the client's (experimental) read-your-writes mode.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appv1alpha1 "example.com/podreplica-controller-runtime/api/v1alpha1"
)

const ownerKey = ".metadata.controller"

type reconciler struct {
	client.Client
	live         client.Reader // reads past the cache
	scheme       *runtime.Scheme
	metadataOnly bool
}

// ownedPods returns the metadata of the pods in ns that the named PodReplica controls.
func (r *reconciler) ownedPods(ctx context.Context, ns, name string) ([]*metav1.ObjectMeta, error) {
	opts := []client.ListOption{client.InNamespace(ns), client.MatchingFields{ownerKey: name}}
	var out []*metav1.ObjectMeta
	if r.metadataOnly {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.List(ctx, &list, opts...); err != nil {
			return nil, err
		}
		for i := range list.Items {
			out = append(out, &list.Items[i].ObjectMeta)
		}
		return out, nil
	}
	var list corev1.PodList
	if err := r.List(ctx, &list, opts...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, &list.Items[i].ObjectMeta)
	}
	return out, nil
}

func (r *reconciler) podFor(cr *appv1alpha1.PodReplica, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cr.Namespace, Labels: map[string]string{"app": cr.Name}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "busybox", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "3600"},
		}}},
	}
	return pod, ctrl.SetControllerReference(cr, pod, r.scheme)
}

// Reconcile makes the pods of one PodReplica match spec.size and writes their names to the status.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cr appv1alpha1.PodReplica
	if err := r.Get(ctx, req.NamespacedName, &cr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cr.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	pods, err := r.ownedPods(ctx, cr.Namespace, cr.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("list pods: %w", err)
	}
	have := make(map[int32]*metav1.ObjectMeta, len(pods))
	for _, pod := range pods {
		if !metav1.IsControlledBy(pod, &cr) {
			continue
		}
		if i, err := strconv.ParseInt(strings.TrimPrefix(pod.Name, cr.Name+"-"), 10, 32); err == nil {
			have[int32(i)] = pod
		}
	}

	names := make([]string, 0, cr.Spec.Size)
	for i := range cr.Spec.Size {
		name := fmt.Sprintf("%s-%d", cr.Name, i)
		if pod, ok := have[i]; ok {
			delete(have, i)
			if pod.DeletionTimestamp.IsZero() { // else its delete event comes back here
				names = append(names, name)
			}
			continue
		}
		pod, err := r.podFor(&cr, name)
		if err != nil {
			return ctrl.Result{}, err
		}
		switch err := r.Create(ctx, pod); {
		case err == nil:
			names = append(names, name)
		case apierrors.IsAlreadyExists(err): // the cache is behind the server: ask it whose pod this is
			live := &corev1.Pod{}
			err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), live)
			if client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, fmt.Errorf("get pod: %w", err)
			}
			if err == nil && metav1.IsControlledBy(live, &cr) && live.DeletionTimestamp.IsZero() {
				names = append(names, name)
			}
		default:
			return ctrl.Result{}, fmt.Errorf("create pod: %w", err)
		}
	}
	surplus := make([]int32, 0, len(have))
	for i, pod := range have {
		if pod.DeletionTimestamp.IsZero() {
			surplus = append(surplus, i)
		}
	}
	slices.Sort(surplus)
	for _, i := range slices.Backward(surplus) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: have[i].Name}}
		if err := r.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("delete pod: %w", err)
		}
	}

	if !slices.Equal(cr.Status.PodNames, names) {
		base := cr.DeepCopy()
		cr.Status.PodNames = names
		if err := r.Status().Patch(ctx, &cr, client.MergeFrom(base)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	indexed := client.Object(&corev1.Pod{})
	var owns []builder.OwnsOption
	if r.metadataOnly {
		pod := &metav1.PartialObjectMetadata{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		indexed, owns = pod, append(owns, builder.OnlyMetadata)
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), indexed, ownerKey, func(o client.Object) []string {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != "PodReplica" || owner.APIVersion != appv1alpha1.GroupVersion.String() {
			return nil
		}
		return []string{owner.Name}
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&appv1alpha1.PodReplica{}).
		Owns(&corev1.Pod{}, owns...).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(r)
}

func run() error {
	pods := flag.String("pods", "typed", "what the cache keeps of a pod: typed or metadata")
	ryw := flag.Bool("ryw", false, "read-your-writes client")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.QPS = -1
	opts := ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}}
	if *pods == "metadata" {
		opts.Cache.DefaultTransform = cache.TransformStripManagedFields()
	}
	if *ryw {
		opts.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: ryw}
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return err
	}
	r := &reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), scheme: scheme, metadataOnly: *pods == "metadata"}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		ctrl.Log.Error(err, "exit")
		os.Exit(1)
	}
}
