"""Programs that run in the pods of models, not in Hearth: their text goes into manifests.

Lives here: what fetches weights, puts pulled files in their place, and waits for both.
May not be here: anything of Hearth or beyond Python 3.8, as the images of engines bring neither.
Read first: wait.py, then download.py and promote.py.
"""
