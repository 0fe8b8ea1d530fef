"""What clashes in the error inputs of torch's own tables that are about shapes, dtypes or devices: judged by hand.

One line a case: the kind, then the tensors that clash by their number among those given, with the dimension after a
point where one is meant. A tensor of one dimension is named as a whole. ``=weight`` is an argument or parameter that is
not among the given tensors. The comment shows what is given. Every other error input is about an index, an argument or
a value.
"""

from __future__ import annotations

EXPECTED = {
    "item 0": "shape 0",  # 10
    "item 1": "shape 0",  # 5
    "item 2": "shape 0",  # 5x5
    "item 3": "shape 0",  # 5x10x20
    "dot 0": "dtype 0 1",  # 1 3:float16
    "dot 1": "shape 0",  # 1x1 3
    "dot 2": "shape 0 1",  # 9 3
    "vdot 0": "dtype 0 1",  # 1 3:float16
    "vdot 1": "shape 0",  # 1x1 3
    "vdot 2": "shape 0 1",  # 9 3
    "sum_to_size 0": "shape 0.1",  # 10x5x10 [10, 10]
    "sum_to_size 1": "shape 0.2",  # 11x5x5x10 [11, 1]
    "complex 0": "dtype 1",  # 10x5 10x5:int32
    "complex 1": "dtype 0 1",  # 10x5 10x5:float64
    "complex 2": "dtype 2",  # 10x5:float64 10x5:float64 10x5:complex64
    "cov 0": "shape 0",  # 5x5x5
    "cov 1": "shape 1",  # 5 5x5
    "cov 2": "shape 1",  # 5 5x5
    "cov 3": "dtype 1",  # 5 5
    "cov 4": "dtype 1",  # 5 2:int64
    "cov 5": "shape 1",  # 5 1:int64
    "cov 6": "shape 1",  # 5 1
    "diag 0": "shape 0",  # () [0]
    "diag 1": "shape 0",  # 1x1x1 [0]
    "fliplr 0": "shape 0",  # 1
    "flipud 0": "shape 0",  # ()
    "gradient 3": "device 0 1 2",  # 3x3:int64 3:int64 3:int64@meta
    "gradient 5": "shape 0.1",  # 3x1:int64
    "gradient 6": "shape 0.0 0.1",  # 2x2:int64
    "gradient 10": "device 0 1 2",  # 3x3 3:int64 3:int64@meta
    "gradient 12": "shape 0.1",  # 3x1:int64
    "gradient 13": "shape 0.0 0.1",  # 2x2:int64
    "gradient 17": "device 0 1 2",  # 3x3:complex64 3:int64 3:int64@meta
    "gradient 19": "shape 0.1",  # 3x1:int64
    "gradient 20": "shape 0.0 0.1",  # 2x2:int64
    "linspace 2": "shape 0 1",  # 2:int64 2:int64 [1]
    "linspace.tensor_overload 2": "shape 0 1",  # 2:int64 2:int64 [1]
    "logspace 2": "shape 0 1",  # 2:int64 2:int64 [1]
    "logspace.tensor_overload 2": "shape 0 1",  # 2:int64 2:int64 [1]
    "masked_fill 0": "shape 2",  # 2x2 ():bool 1
    "masked_fill 1": "dtype =value",  # 2x2 ():bool [1j]
    "masked_fill 2": "dtype 2",  # 2:int64 ():bool ():complex64
    "masked_scatter 0": "dtype 1",  # 1x3 1x3 3x4
    "masked_scatter 1": "dtype 1",  # 1x3 1x3:uint8 3x4
    "nn.functional.linear_cross_entropy 0": "shape 0",  # 2x3x3 2x3 3x2
    "nn.functional.linear_cross_entropy 1": "shape 1",  # 2x3 2 2x2
    "nn.functional.linear_cross_entropy 2": "shape 0.1 1.1",  # 2x3 2x4 2x2
    "nn.functional.linear_cross_entropy 4": "shape 0 1",  # 3 2x4x3 2x4
    "nn.functional.linear_cross_entropy 5": "shape 3",  # 2x3 2x3 2 3
    "nn.functional.linear_cross_entropy.chunked 0": "shape 0",  # 2x3x3 2x3 3x2
    "nn.functional.linear_cross_entropy.chunked 1": "shape 1",  # 2x3 2 2x2
    "nn.functional.linear_cross_entropy.chunked 2": "shape 0.1 1.1",  # 2x3 2x4 2x2
    "nn.functional.linear_cross_entropy.chunked 4": "shape 0 1",  # 3 2x4x3 2x4
    "nn.functional.linear_cross_entropy.chunked 5": "shape 3",  # 2x3 2x3 2 3
    "nn.functional.linear_cross_entropy.chunked_none 0": "shape 0",  # 2x3x3 2x3 3x2
    "nn.functional.linear_cross_entropy.chunked_none 1": "shape 1",  # 2x3 2 2x2
    "nn.functional.linear_cross_entropy.chunked_none 2": "shape 0.1 1.1",  # 2x3 2x4 2x2
    "nn.functional.linear_cross_entropy.chunked_none 4": "shape 0 1",  # 3 2x4x3 2x4
    "nn.functional.linear_cross_entropy.chunked_none 5": "shape 3",  # 2x3 2x3 2 3
    "aminmax 0": "shape 0.1",  # 5x0x5
    "aminmax 1": "shape 0",  # 65 times 1x
    "aminmax 2": "shape 0",  # 65 times 1x
    "aminmax 3": "dtype 2",  # 20x20 20 20:float64
    "aminmax 4": "shape 0.1",  # 5x0x5
    "native_layer_norm 1": "shape 1",  # 1x2x3 1x2
    "native_layer_norm 2": "shape 1",  # 1x2x3 1x2
    "native_layer_norm 3": "shape 0.2",  # 2x2x3
    "nn.functional.avg_pool3d 5": "shape 0",  # 0x1x49
    "nn.functional.conv1d 0": "dtype 0",  # 1x1x4:int64 1x1x2:int64 1:float64
    "nn.functional.conv1d 1": "dtype 0 2",  # 1x1x4:float64 1x1x2:float64 1:complex128
    "nn.functional.conv1d 5": "shape 1",  # 1x1x4:float64 1x2:float64 1:float64
    "nn.functional.conv1d 6": "shape 1.0",  # 2x2x4:float64 2x2x2:float64 2:float64
    "nn.functional.conv1d 7": "shape 1.0",  # 2x2x4:float64 2x2x2:float64 2:float64
    "nn.functional.conv2d 0": "dtype 0",  # 2x4x4:int64 3x2x3x3:int64 3:float64
    "nn.functional.conv2d 1": "dtype 0 2",  # 2x4x4:float64 3x2x3x3:float64 3:complex128
    "nn.functional.conv2d 5": "shape 1",  # 1x1x4x3:float64 1x2x2:float64 1:float64
    "nn.functional.conv2d 6": "shape 1.0",  # 2x2x4x3:float64 2x2x1x3:float64 2:float64
    "nn.functional.conv2d 7": "shape 1.0",  # 2x2x4x3:float64 2x2x1x3:float64 2:float64
    "nn.functional.conv3d 0": "dtype 0",  # 1x1x4x4x4:int64 1x1x2x2x2:int64 1:float64
    "nn.functional.conv3d 1": "dtype 0 2",  # 1x1x4x4x4:float64 1x1x2x2x2:float64 1:complex128
    "nn.functional.conv3d 5": "shape 1",  # 1x1x3x4x5:float64 1x1x4x3:float64 1:float64
    "nn.functional.conv3d 6": "shape 1.0",  # 2x2x3x4x5:float64 2x2x4x3x3:float64 2:float64
    "nn.functional.conv3d 7": "shape 1.0",  # 2x2x3x4x5:float64 2x2x4x3x3:float64 2:float64
    "nn.functional.group_norm 0": "shape 0",  # 1 [1]
    "nn.functional.group_norm 1": "shape 0.1",  # 2x7x4 [2]
    "nn.functional.rms_norm 1": "shape 1",  # 1x2x3 1x2 [(1, 2, 3), 1e-05]
    "nn.functional.rms_norm 2": "shape 0.2",  # 2x2x3
    "nn.functional.soft_margin_loss 1": "shape 0.1 1",  # 5x4 5
    "nn.functional.margin_ranking_loss 1": "shape 2",  # 5x4 5x4 5
    "nn.functional.multi_margin_loss 1": "shape 0.1",  # 5x0 5
    "nn.functional.multi_margin_loss 2": "shape 0",  # 0 5
    "nn.functional.multi_margin_loss 3": "shape 1",  # 5x4 5x4
    "nn.functional.multi_margin_loss 4": "dtype 1",  # 5x4 5
    "nn.functional.multi_margin_loss 5": "shape 2",  # 5x4 5 ()
    "nn.functional.multi_margin_loss 6": "shape 2",  # 5x4 5 5x4
    "nn.functional.multi_margin_loss 7": "shape 2",  # 5x4 5 5
    "nn.functional.multilabel_margin_loss 1": "shape 0.1",  # 5x0 5x4
    "nn.functional.multilabel_margin_loss 2": "shape 0",  # 0 0
    "nn.functional.multilabel_margin_loss 3": "shape 1",  # 5x4 4
    "nn.functional.multilabel_margin_loss 4": "shape 1",  # 5x4 ()
    "nn.functional.max_pool1d 3": "shape 0",  # ()
    "nn.functional.max_pool1d 4": "shape 0",  # 0
    "nn.functional.max_pool1d 5": "shape 0.0",  # 0x10
    "nn.functional.max_pool1d 6": "shape 0.2",  # 1x10x0
    "nn.functional.max_pool1d 9": "shape 0.2",  # 2x2x2
    "nn.functional.max_pool1d 15": "shape 0",  # ()
    "nn.functional.max_pool1d 16": "shape 0",  # 0
    "nn.functional.max_pool1d 17": "shape 0.0",  # 0x10
    "nn.functional.max_pool1d 18": "shape 0.2",  # 1x10x0
    "nn.functional.max_pool1d 21": "shape 0.2",  # 2x2x2
    "nn.functional.max_pool2d 4": "shape 0.1",  # 1x0x10
    "nn.functional.max_pool2d 5": "shape 0.3",  # 2x1x10x0
    "nn.functional.max_pool2d 6": "shape 0.1",  # 1x1x4
    "nn.functional.max_pool3d 4": "shape 0.0",  # 0x1x2x10
    "nn.functional.max_pool3d 5": "shape 0.2",  # 2x1x0x1x2
    "nn.functional.max_pool3d 6": "shape 0.2",  # 1x1x1x4x4
    "nn.functional.max_unpool1d 0": "shape 1.1",  # 8x8 8x7:int64
    "nn.functional.max_unpool2d 0": "shape 1.3",  # 1x1x4x4 1x1x4x1:int64
    "nn.functional.max_unpool3d 0": "shape 1.4",  # 1x1x4x4x4 1x1x4x4x1:int64
    "nn.functional.prelu 0": "shape 0",  # () 2
    "nn.functional.prelu 1": "shape 0.1 1",  # 2x8x3 9
    "nn.functional.prelu 2": "shape 1",  # 2x8x3 2x4
    "nn.functional.triplet_margin_loss 2": "shape 0.1 1.1",  # 3x5 3x4 3x4
    "nn.functional.triplet_margin_loss 3": "shape 0.1 1.1",  # 3x4 3x5 3x4
    "nn.functional.triplet_margin_loss 4": "shape 0.1 2.1",  # 3x4 3x4 3x5
    "nn.functional.triplet_margin_loss 5": "shape 0",  # 3 3x4 3x4
    "nn.functional.triplet_margin_loss 6": "shape 1",  # 3x4 3 3x4
    "nn.functional.triplet_margin_loss 7": "shape 2",  # 3x4 3x4 3
    "nn.functional.triplet_margin_with_distance_loss 2": "shape 0.1 1.1",  # 3x5 3x4 3x4
    "nn.functional.triplet_margin_with_distance_loss 3": "shape 0.1 1.1",  # 3x4 3x5 3x4
    "nn.functional.triplet_margin_with_distance_loss 4": "shape 0.1 2.1",  # 3x4 3x4 3x5
    "nn.functional.triplet_margin_with_distance_loss 5": "shape 0",  # 3 3x4 3x4
    "nn.functional.triplet_margin_with_distance_loss 6": "shape 1",  # 3x4 3 3x4
    "nn.functional.triplet_margin_with_distance_loss 7": "shape 2",  # 3x4 3x4 3
    "narrow 0": "shape 0",  # () [0, 0, 1]
    "narrow 7": "shape 1",  # 20x10x5 5:int32 [1, 2]
    "narrow 8": "dtype 1",  # 20x10x5 ():bool [-3, 3]
    "narrow_copy 0": "shape 0",  # () [0, 0, 1]
    "view_copy 0": "shape 0",  # 2 [()]
    "view_copy 1": "shape 0",  # 1x3x0 [()]
    "view_copy 2": "shape 0",  # 4x3 [(4, 2)]
    "view_copy 3": "shape 0",  # 1x3x5 [(5, 2, 2)]
    "view_copy 4": "shape 0",  # 1x3x5 [(5, -1, 2)]
    "view_copy 6": "shape 0",  # 1 [(0, -1)]
    "view_copy 7": "shape 0",  # 0x5 [(0, -1)]
    "neg 0": "dtype 0",  # 2:bool
    "ormqr 0": "shape 0",  # () () ()
    "ormqr 1": "shape 1",  # 5x0:int64 5:int64 5x5:int64 [True, True]
    "rot90 1": "shape 0",  # 5
    "hsplit 0": "shape 0",  # () [0]
    "vsplit 0": "shape 0",  # 5 [0]
    "dsplit 0": "shape 0",  # 5 [0]
    "reshape 0": "shape 0",  # 2 [()]
    "reshape 1": "shape 0",  # 1x3x0 [()]
    "reshape 2": "shape 0",  # 4x3 [(4, 2)]
    "reshape 3": "shape 0",  # 1x3x5 [(5, 2, 2)]
    "reshape 4": "shape 0",  # 1x3x5 [(5, -1, 2)]
    "reshape 6": "shape 0",  # 1 [(0, -1)]
    "reshape 7": "shape 0",  # 0x5 [(0, -1)]
    "reshape_as 0": "shape 0",  # 4x3 4x2
    "reshape_as 1": "shape 0",  # 1x3x5 5x2x2
    "view 0": "shape 0",  # 2 [()]
    "view 1": "shape 0",  # 1x3x0 [()]
    "view 2": "shape 0",  # 4x3 [(4, 2)]
    "view 3": "shape 0",  # 1x3x5 [(5, 2, 2)]
    "view 4": "shape 0",  # 1x3x5 [(5, -1, 2)]
    "view 6": "shape 0",  # 1 [(0, -1)]
    "view 7": "shape 0",  # 0x5 [(0, -1)]
    "view_as 0": "shape 0",  # 4x3 4x2
    "view_as 1": "shape 0",  # 1x3x5 5x2x2
    "gather 0": "shape 0.0 1.0",  # 1x1 2x2:int64 [1]
    "gather 1": "dtype 2",  # 2x2 2x2:int64 2x2:float64 [1]
    "gather 2": "shape 0 1",  # 2x2 2:int64 [1]
    "gather 3": "shape 0 1",  # 2 2x2:int64 [0]
    "index_add 0": "shape 0 2",  # 3x2 2:int64 2 [0]
    "scatter 0": "dtype 0 2",  # 3x5:float64 2x2:int64 2x5 [0]
    "scatter 1": "shape 0 1",  # 3x5x3 2x2:int64 2x5 [0]
    "scatter 2": "shape 1 2",  # 3x5 2x2:int64 2x5x2 [0]
    "multinomial 0": "shape 0",  # 1x2x3:float64 [2]
    "multinomial 1": "dtype 0",  # 1x2:int64 [2]
    "multinomial 2": "dtype 1",  # 1x2:float64 1x2:float64 [2]
    "scatter_add 0": "dtype 0 2",  # 3x5:float64 2x2:int64 2x5 [0]
    "scatter_add 1": "shape 0 1",  # 3x5x3 2x2:int64 2x5 [0]
    "scatter_add 2": "shape 1 2",  # 3x5 2x2:int64 2x5x2 [0]
    "_chunk_cat 0": "shape 0 1",  # 2x3 4
    "_chunk_cat 1": "shape 0 1",  # 2x3 4
    "_chunk_cat 2": "shape 0.0 1.0",  # 2x3x4 4x3
    "_chunk_cat 6": "shape 0",  # 0 3
    "hstack 0": "shape 0 1",  # 5:int32 5x5x5x5:int32 5:int32
    "histogramdd 0": "shape 0.1",  # 5x6 [[1, 1, 1, 1, 1]]
    "bucketize 0": "shape 1",  # 5x5x5 5x5
    "cat 2": "shape 0.2 1.2",  # 5x5x20x20 5x0x19x20
    "cat 3": "shape 0.2 1.2",  # 5x0x19x20 5x5x20x20
    "cat 4": "shape 0 1",  # 4x0 5x0x19x20
    "cat 5": "shape 0 1",  # 5x0x19x20 4x0
    "cat 9": "shape 0 1",  # 20x1 20x1x1 20x1x1
    "cat 10": "shape 0.2 1.2 2.2",  # 5x1x10 5x1x1 5x10x1
    "cat 12": "shape 0 1",  # () ()
    "vstack 0": "shape 0 1",  # 5:int32 5x5x5x5:int32 5:int32
    "dstack 0": "shape 0 1",  # 5:int32 5x5x5x5:int32 5:int32
    "renorm 0": "shape 0",  # () [0.5, 0, 1.0]
    "trace 0": "shape 0",  # 3x4x5
    "tril 0": "shape 0",  # 4
    "triu 0": "shape 0",  # 4
    "nn.functional.l1_loss 1": "shape 0.1 1",  # 5x4 5
    "t 0": "shape 0",  # 2x3x4x5
    "t_copy 0": "shape 0",  # 2x3x4x5
    "nn.functional.embedding 0": "shape 0",  # () 2x2:int64
    "nn.functional.embedding 1": "shape 0",  # 1x1x1 2x2:int64
    "amax 0": "shape 0.1",  # 5x0x5
    "amax 1": "shape 0",  # 65 times 1x
    "amax 2": "shape 0",  # 65 times 1x
    "amax 5": "dtype 1",  # 20x20 20:int32
    "amax 6": "shape 0.1",  # 5x0x5
    "amin 0": "shape 0.1",  # 5x0x5
    "amin 1": "shape 0",  # 65 times 1x
    "amin 2": "shape 0",  # 65 times 1x
    "amin 5": "dtype 1",  # 20x20 20:int32
    "amin 6": "shape 0.1",  # 5x0x5
    "mean 0": "dtype 0",  # 3x4x5:int64 [[]]
    "mean 1": "dtype =dtype",  # 3x4x5 [[]]
    "nn.functional.gaussian_nll_loss 1": "shape 2.2",  # 10x2x3 10x2x3 10x2x2
    "nn.functional.gaussian_nll_loss 2": "shape 0.2 1.2",  # 10x2x3 10x2x2 10x2x3
    "nn.functional.poisson_nll_loss 1": "shape 0.1 1",  # 5x4 5
    "linalg.cross 0": "shape 1.1",  # 5x3 5x1
    "linalg.cross 1": "shape 0 1",  # 5x5x3 5x3
    "linalg.cross 2": "shape 0.1 1.1",  # 5x2 5x2
    "linalg.lstsq 0": "shape 0",  # () ()
    "linalg.lstsq.grad_oriented 0": "shape 0",  # () () [None]
    "signal.windows.hamming 2": "dtype =dtype",  # [3]
    "signal.windows.hamming 3": "dtype =dtype",  # [3]
    "signal.windows.hamming 4": "dtype =dtype",  # [3]
    "signal.windows.hann 2": "dtype =dtype",  # [3]
    "signal.windows.hann 3": "dtype =dtype",  # [3]
    "signal.windows.hann 4": "dtype =dtype",  # [3]
    "signal.windows.bartlett 2": "dtype =dtype",  # [3]
    "signal.windows.bartlett 3": "dtype =dtype",  # [3]
    "signal.windows.bartlett 4": "dtype =dtype",  # [3]
    "signal.windows.blackman 2": "dtype =dtype",  # [3]
    "signal.windows.blackman 3": "dtype =dtype",  # [3]
    "signal.windows.blackman 4": "dtype =dtype",  # [3]
    "signal.windows.cosine 2": "dtype =dtype",  # [3]
    "signal.windows.cosine 3": "dtype =dtype",  # [3]
    "signal.windows.cosine 4": "dtype =dtype",  # [3]
    "signal.windows.exponential 2": "dtype =dtype",  # [3]
    "signal.windows.exponential 3": "dtype =dtype",  # [3]
    "signal.windows.exponential 4": "dtype =dtype",  # [3]
    "signal.windows.gaussian 2": "dtype =dtype",  # [3]
    "signal.windows.gaussian 3": "dtype =dtype",  # [3]
    "signal.windows.gaussian 4": "dtype =dtype",  # [3]
    "signal.windows.kaiser 2": "dtype =dtype",  # [3]
    "signal.windows.kaiser 3": "dtype =dtype",  # [3]
    "signal.windows.kaiser 4": "dtype =dtype",  # [3]
    "signal.windows.general_cosine 2": "dtype =dtype",  # [3]
    "signal.windows.general_cosine 3": "dtype =dtype",  # [3]
    "signal.windows.general_cosine 4": "dtype =dtype",  # [3]
    "signal.windows.general_hamming 2": "dtype =dtype",  # [3]
    "signal.windows.general_hamming 3": "dtype =dtype",  # [3]
    "signal.windows.general_hamming 4": "dtype =dtype",  # [3]
    "signal.windows.nuttall 2": "dtype =dtype",  # [3]
    "signal.windows.nuttall 3": "dtype =dtype",  # [3]
    "signal.windows.nuttall 4": "dtype =dtype",  # [3]
    "nn.MaxPool2d 0": "shape 0",  # 3x4
    "nn.MaxPool2d 1": "shape 0",  # 1x2x3x4x5
    "nn.MultiMarginLoss 0": "shape 1",  # 5x10 3:int64
    "nn.NLLLoss 0": "dtype 0 =weight",  # 0x0 0:int64
    "nn.CrossEntropyLoss 0": "dtype 1",  # 2x3 2x3:int64
    "nn.CrossEntropyLoss 1": "dtype 1",  # 2x3 2
    "nn.CrossEntropyLoss 2": "shape 0.0 1",  # 2x3 3:int64
    "nn.CrossEntropyLoss 3": "shape =weight",  # 2x3 2:int64
    "nn.CrossEntropyLoss 6": "shape 1.1",  # 2x3x5 2x4:int64
    "nn.LinearCrossEntropyLoss 0": "dtype 1",  # 4x3 4x2:int64
    "nn.LinearCrossEntropyLoss 1": "shape 0.0 1.0",  # 4x3 5x2
    "nn.LinearCrossEntropyLoss 2": "shape 0.1",  # 4x5 4x2
    "nn.Embedding 1": "dtype 0",  # 2
    "nn.RNNCell 0": "shape 0.1",  # 3x11 3x20
    "nn.RNNCell 1": "shape 1.1",  # 3x10 3x21
    "nn.RNNCell 2": "shape 0.0 1.0",  # 3x10 5x20
    "nn.RNNCell 3": "shape 1",  # 3x10 3x1x1x20
    "nn.RNNCell 4": "shape 1.1",  # 3x10 3x21
    "nn.RNNCell 5": "shape 1.1",  # 3x10 3x21
    "nn.GRUCell 0": "shape 0.1",  # 3x11 3x20
    "nn.GRUCell 1": "shape 1.1",  # 3x10 3x21
    "nn.GRUCell 2": "shape 0.0 1.0",  # 3x10 5x20
    "nn.GRUCell 3": "shape 1",  # 3x10 3x1x1x20
    "nn.GRUCell 4": "shape 1.1",  # 3x10 3x21
    "nn.GRUCell 5": "shape 1.1",  # 3x10 3x21
    "nn.LSTMCell 0": "shape 0.1",  # 3x11 3x20 3x20
    "nn.LSTMCell 1": "shape 1.1",  # 3x10 3x21 3x21
    "nn.LSTMCell 2": "shape 0.0 1.0",  # 3x10 5x20 5x20
    "nn.LSTMCell 3": "shape 1",  # 3x10 3x1x1x20 3x1x1x20
    "nn.RNN 2": "dtype 0",  # 2x4x3:float64
    "nn.GRU 2": "dtype 0",  # 2x4x3:float64
    "nn.LSTM 2": "dtype 0",  # 2x4x3:float64
    "nn.CircularPad1d 0": "shape 0",  # 2x3x4x5
    "nn.CircularPad2d 0": "shape 0",  # 2x3
    "nn.CircularPad3d 0": "shape 0",  # 2x3
    "nn.functional.adaptive_avg_pool2d 0": "shape 0",  # 2x2
    "nn.functional.adaptive_avg_pool3d 0": "shape 0",  # 2x2x2
    "nn.functional.adaptive_max_pool2d 0": "shape 0",  # 2x2
    "nn.functional.adaptive_max_pool3d 0": "shape 0",  # 2x2x2
    "nn.LinearCrossEntropyLoss 3": "shape 0",  # weight of 3 for 2 classes
}
